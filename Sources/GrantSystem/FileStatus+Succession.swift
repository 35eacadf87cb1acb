import CGrantSystem
import Glibc

extension FileStatus {
    /// Whether this file, found under a document's name, may be what somebody on the host saved the document as: a regular file of
    /// the same owner with no other name (docs/decisions/documents.md).
    public func mayReplaceDocument(ofOwner owner: UInt32) -> Bool {
        st.st_mode & S_IFMT == S_IFREG && st.st_nlink == 1 && st.st_uid == owner
    }
}
