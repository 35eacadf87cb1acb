import GrantModel

/// The parsing that all kinds of TOML files have in common. Anything invalid is an error with its line.
protocol TOMLReading {
    /// The file's name in messages.
    var file: String { get }
}

extension TOMLReading {
    /// Returns the items of a document. Throws `.invalidFile`, with the line where it is known, for
    /// invalid TOML.
    func items(of bytes: [UInt8]) throws(GrantError) -> [(key: String, value: TOMLValue)] {
        let document: TOMLValue
        do throws(TOMLValue.Failure) {
            document = try TOMLValue.read(bytes)
        } catch {
            throw GrantError(.invalidFile, file + (error.line > 0 ? ":\(error.line)" : "") + ": this is not TOML", cause: error.reason)
        }
        guard case .table(let items) = document.kind else { return [] }
        return items
    }

    /// `example`: how the list is written, for the error message.
    func list<Item>(
        _ value: TOMLValue, _ key: String, example: String? = nil, _ read: (TOMLValue) throws(GrantError) -> Item
    ) throws(GrantError) -> [Item] {
        guard case .array(let values) = value.kind else {
            throw wrong(value, "“\(key)” is a list", advice: example ?? "\(key) = [\"…\"]")
        }
        var items: [Item] = []
        for value in values { items.append(try read(value)) }
        return items
    }

    func text(_ value: TOMLValue, _ key: String) throws(GrantError) -> String {
        guard case .string(let text) = value.kind else { throw wrong(value, "“\(key)” is text", advice: "in quotes") }
        return text
    }

    func word<Word: RawRepresentable<String>>(_ value: TOMLValue, _ key: String, _ words: String) throws(GrantError) -> Word {
        let text = try text(value, key)
        guard let word = Word(rawValue: text) else { throw wrong(value, "“\(text)” is unknown for “\(key)”", advice: words) }
        return word
    }

    func access(_ value: TOMLValue, _ key: String) throws(GrantError) -> Access {
        let text = try text(value, key)
        guard let access = Access(word: text) else {
            throw wrong(value, "“\(text)” is unknown for “\(key)”", advice: "read-write or read-only")
        }
        return access
    }

    func unknown(_ key: String, _ value: TOMLValue, among keys: [String]) -> GrantError {
        let near = Suggestion.nearest(to: key, among: keys)
        return wrong(value, "unknown key “\(key)”", advice: near.map { "did you mean “\($0)”?" } ?? keys.joined(separator: ", "))
    }

    func wrong(_ value: TOMLValue, _ message: String, cause: String? = nil, advice: String? = nil) -> GrantError {
        GrantError(.invalidFile, "\(file):\(value.line): \(message)", cause: cause, advice: advice)
    }
}
