import GrantModel
import GrantTerminal

extension Picker {
    mutating func review(_ key: Key) -> [Effect] {
        if editing != nil {
            edit(key)
            return []
        }
        if reviewWindow.handle(key, count: choices.count, height: reviewHeight) { return [] }
        let selected = reviewWindow.selected
        switch key {
        case .escape, .left: page = .browsing
        case .enter: return grant()
        case .character(" "), .character("a"): choices[selected].access = choices[selected].access == .readOnly ? .readWrite : .readOnly
        case .character("n"):
            // A name that is not UTF-8 is kept until another is entered.
            let name = choices[selected].name.flatMap { $0.isUTF8 ? $0.description : nil }
            editing = Editing(field: .name, line: LineEditor(name ?? ""))
        case .character("v"): editing = Editing(field: .view, line: LineEditor(choices[selected].view.description))
        case .character("e"): editing = Editing(field: .expiry, line: LineEditor(choices[selected].expiry ?? ""))
        case .delete, .backspace, .character("d"):
            choices.remove(at: selected)
            if choices.isEmpty { page = .browsing }
            show()
        default: break
        }
        return []
    }

    private mutating func edit(_ key: Key) {
        guard var editing else { return }
        switch key {
        case .escape: self.editing = nil
        case .enter: accept(editing)
        default:
            _ = editing.line.handle(key)
            self.editing = editing
        }
    }

    private mutating func accept(_ editing: Editing) {
        let index = reviewWindow.selected
        do throws(GrantName.Flaw) {
            switch editing.field {
            case .name: choices[index].name = try GrantName(chosen: Array(editing.line.text.utf8))
            case .view: choices[index].view = try ViewName(editing.line.text)
            case .expiry:
                guard let expiry = checkedExpiry(editing.line.text) else { return }
                choices[index].expiry = expiry.isEmpty ? nil : expiry
            }
            self.editing = nil
        } catch {
            message = "invalid name: \(error.rawValue)"
        }
    }

    /// Returns nil, and sets the message, if it is not a valid time.
    private mutating func checkedExpiry(_ text: String) -> String? {
        let text = String(text.drop { $0 == " " })
        do throws(GrantError) {
            if !text.isEmpty { try checkExpiry(text) }
            return text
        } catch {
            message = error.message + (error.advice.map { " (\($0))" } ?? "")
            return nil
        }
    }

    private mutating func grant() -> [Effect] {
        let problems = choices.indices.count { problem($0) != nil }
        if problems > 0 {
            message = "nothing is granted: \(problems) of \(choices.count) cannot be"
            return []
        }
        if choices.contains(where: { $0.finding == .open }) {
            message = "not yet: the directories are still inspected"
            return []
        }
        page = .granting
        return [.grant(choices)]
    }
}
