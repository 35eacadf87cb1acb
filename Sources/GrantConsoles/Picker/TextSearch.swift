import Glibc

enum TextSearch {
    /// strstr(3): a list of 100,000 names is searched with every key that is hit.
    static func does(_ text: String, contain words: String) -> Bool { strstr(text, words) != nil }
}
