import CGrantSystem
import Glibc

extension FileStatus {
    /// Whether the file, which stands at a document's place under its name, may be what the document was saved as by somebody on the host: a regular
    /// file of the same owner that has no other name (docs/decisions/documents.md).
    public func maySucceed(aDocumentOf owner: UInt32) -> Bool {
        st.st_mode & S_IFMT == S_IFREG && st.st_nlink == 1 && st.st_uid == owner
    }
}
