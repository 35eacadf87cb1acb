import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import GrantTerminal

/// The picker on a screen. It carries out effects on threads of their own, so keys are handled even if a filesystem hangs.
public final class PickerSession {
    /// The functions that do the work. The session knows neither store nor disk.
    public struct Work: Sendable {
        /// Lists a directory.
        public var list: @Sendable ([UInt8]) throws(GrantError) -> DirectoryListing
        public var links: @Sendable (DirectoryListing) -> [[UInt8]]?
        public var propose: @Sendable ([UInt8]) throws(GrantError) -> GrantAdministrator.Proposal
        public var taken: @Sendable () throws(GrantError) -> [PickerChoice.Slot]
        /// Returns the directories granted now, by their recorded paths.
        public var granted: @Sendable () throws(GrantError) -> [[UInt8]: [ViewName]] = { [:] }
        public var grant: @Sendable ([GrantAdministrator.Choice]) throws(GrantError) -> [GrantChange]
        /// Parses a time that was entered.
        public var expiry: @Sendable (String) throws(GrantError) -> Instant = { text throws(GrantError) in
            throw GrantError(.usage, "invalid time “\(text)”")
        }

        public init(
            list: @escaping @Sendable ([UInt8]) throws(GrantError) -> DirectoryListing,
            links: @escaping @Sendable (DirectoryListing) -> [[UInt8]]?,
            propose: @escaping @Sendable ([UInt8]) throws(GrantError) -> GrantAdministrator.Proposal,
            taken: @escaping @Sendable () throws(GrantError) -> [PickerChoice.Slot],
            grant: @escaping @Sendable ([GrantAdministrator.Choice]) throws(GrantError) -> [GrantChange]
        ) {
            (self.list, self.links, self.propose, self.taken, self.grant) = (list, links, propose, taken, grant)
        }
    }

    private enum Message: Sendable {
        case answer(Picker.Answer)
        case proposed([UInt8], GrantAdministrator.Proposal)
        case granted([GrantChange])
    }

    private let work: Work
    private let inbox: Inbox<Message>
    private var picker: Picker
    private var proposals: [[UInt8]: GrantAdministrator.Proposal] = [:]

    public init(_ picker: Picker, work: Work) throws(GrantError) {
        (self.picker, self.work) = (picker, work)
        do throws(Errno) {
            inbox = try Inbox()
        } catch {
            throw GrantError(.system, "the screen cannot be shown", cause: error.description)
        }
    }

    /// Returns the new grants, or nil if the person cancelled. `directory` is then the last one
    /// shown.
    public func run(on screen: Screen) throws(GrantError) -> [GrantChange]? {
        let loop = try EventLoop(screen, inbox)
        _ = carryOut(picker.begin(screen.size))
        let (work, inbox) = (work, inbox)
        inBackground {
            if let granted = try? work.granted() { inbox.post(.answer(.granted(granted))) }
        }
        return loop.run({ handle($0) }, frame: { picker.frame($0) })
    }

    public var directory: [UInt8] { picker.directory }

    /// Returns nil while it goes on, and nil inside if it was cancelled.
    private func handle(_ event: Event<Message>) -> [GrantChange]?? {
        switch event {
        case .key(let key):
            if carryOut(picker.handle(key)) { return .some(nil) }
        case .resized(let size): picker.resize(size)
        case .message(.answer(let answer)): picker.handle(answer)
        case .message(.proposed(let path, let proposal)):
            proposals[path] = proposal
            picker.handle(.looked(path, .fine))
        case .message(.granted(let changes)): return changes
        }
        return nil
    }

    /// Returns true at the end.
    private func carryOut(_ effects: [Picker.Effect]) -> Bool {
        for effect in effects {
            switch effect {
            case .cancel: return true
            case .list(let path, let number): list(path, number)
            case .look(let paths): look(paths)
            case .grant(let choices): grant(choices)
            }
        }
        return false
    }

    private func list(_ path: [UInt8], _ number: Int) {
        let (work, inbox) = (work, inbox)
        inBackground {
            do throws(GrantError) {
                let listing = try work.list(path)
                inbox.post(.answer(.listed(PickerEntries(listing, links: listing.links.isEmpty ? [] : nil), number: number)))
                guard !listing.links.isEmpty, let links = work.links(listing) else { return }
                inbox.post(.answer(.listed(PickerEntries(listing, links: links), number: number)))
            } catch {
                // A path that was typed may be a file.
                if let file = try? work.propose(path).bookmark, file.document != nil,
                    let listing = try? work.list(CanonicalPath.parent(of: file.path))
                {
                    inbox.post(.answer(.listed(PickerEntries(listing, links: []), number: number)))
                    return inbox.post(.answer(.file(file.path, number: number)))
                }
                inbox.post(.answer(.unreadable(error.cause ?? error.message, number: number)))
            }
        }
    }

    private func look(_ paths: [[UInt8]]) {
        let (work, inbox) = (work, inbox)
        inBackground {
            if let taken = try? work.taken() { inbox.post(.answer(.taken(taken))) }
            for path in paths {
                do throws(GrantError) {
                    let proposal = try work.propose(path)
                    // The marked path is not a link.
                    if proposal.bookmark.path == path {
                        inbox.post(.proposed(path, proposal))
                    } else {
                        inbox.post(.answer(.looked(path, .refused("another directory is there by now: mark it again"))))
                    }
                } catch {
                    inbox.post(.answer(.looked(path, .refused(error.cause ?? error.message))))
                }
            }
        }
    }

    private func grant(_ chosen: [PickerChoice]) {
        var choices: [GrantAdministrator.Choice] = []
        for choice in chosen {
            guard let proposal = proposals[choice.path], let name = choice.name else { continue }
            do throws(GrantError) {
                let expires = try choice.expiry.map { (text) throws(GrantError) in try self.work.expiry(text) }
                choices.append(
                    GrantAdministrator.Choice(proposal, name: name, view: choice.view, access: choice.access, expires: expires))
            } catch {
                // The expiry has passed since it was entered.
                return picker.handle(.refused(error.description))
            }
        }
        guard choices.count == chosen.count else { return picker.handle(.refused("not every directory was inspected")) }
        let (work, inbox, wanted) = (work, inbox, choices)
        inBackground {
            do throws(GrantError) {
                inbox.post(.granted(try work.grant(wanted)))
            } catch {
                inbox.post(.answer(.refused(error.description)))
            }
        }
    }

    private func inBackground(_ work: @escaping @Sendable () -> Void) {
        guard let thread = try? WorkerThread.start("picker", work) else { return work() }
        thread.detach()
    }
}
