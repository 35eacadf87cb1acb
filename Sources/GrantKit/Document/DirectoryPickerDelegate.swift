import Foundation
import GrantModel

/// Told of what a person has picked. The methods have the names of `UIDocumentPickerDelegate`.
@preconcurrency @MainActor public protocol DirectoryPickerDelegate: AnyObject {
    /// The person has picked these directories or files, which are granted now.
    func documentPicker(_ picker: any DirectoryPicker, didPickDocumentsAt urls: [URL])
    /// The person has picked nothing.
    func documentPickerWasCancelled(_ picker: any DirectoryPicker)
    /// Nobody could be asked, or what was picked cannot be granted. By default it counts as cancelled. There, no error is reported.
    func documentPicker(_ picker: any DirectoryPicker, didFailWith error: GrantError)
}

extension DirectoryPickerDelegate {
    public func documentPickerWasCancelled(_ picker: any DirectoryPicker) {}
    public func documentPicker(_ picker: any DirectoryPicker, didFailWith error: GrantError) { documentPickerWasCancelled(picker) }
}

extension DirectoryPicker {
    /// Asks without blocking the caller. One method of the delegate is called, which is kept until then. There, the picker is presented.
    @MainActor public func pick(_ request: PickRequest, for delegate: any DirectoryPickerDelegate) {
        Task { @MainActor in
            do throws(GrantError) {
                let picked = try await pick(request)
                if picked.isEmpty {
                    delegate.documentPickerWasCancelled(self)
                } else {
                    delegate.documentPicker(self, didPickDocumentsAt: picked.map(\.url))
                }
            } catch {
                delegate.documentPicker(self, didFailWith: error)
            }
        }
    }
}
