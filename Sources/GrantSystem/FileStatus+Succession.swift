import CGrantSystem
import Glibc

extension FileStatus {
    /// Whether this file may be a document that a user on the host has saved.
    ///
    /// It was found under the document's name. It must be a regular file of the same owner with no
    /// other name (docs/decisions/documents.md).
    public func mayReplaceDocument(ofOwner owner: UInt32) -> Bool {
        st.st_mode & S_IFMT == S_IFREG && st.st_nlink == 1 && st.st_uid == owner
    }
}
