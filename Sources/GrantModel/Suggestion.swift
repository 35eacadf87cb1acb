/// Suggestions for mistyped words.
public enum Suggestion {
    /// Returns the word with the smallest edit distance, if that is small for its length.
    public static func nearest(to word: String, among words: [String]) -> String? {
        let near = words.map { (word: $0, distance: distance(word, $0)) }.min { $0.distance < $1.distance }
        if let near, near.distance <= max(1, min(3, word.count / 3)) { return near.word }
        guard word.count >= 3 else { return nil }
        let longer = words.filter { $0.hasPrefix(word) }
        return longer.count == 1 ? longer[0] : nil
    }

    /// Returns the edit distance: letters inserted, removed, replaced, or swapped with their neighbour.
    public static func distance(_ left: String, _ right: String) -> Int {
        let left = Array(left.unicodeScalars.prefix(64))
        let right = Array(right.unicodeScalars.prefix(64))
        var rows = [Array(0...right.count)]
        for i in left.indices {
            var row = [i + 1]
            for j in right.indices {
                let replaced = rows[i][j] + (left[i] == right[j] ? 0 : 1)
                var best = min(replaced, row[j] + 1, rows[i][j + 1] + 1)
                if i > 0, j > 0, left[i] == right[j - 1], left[i - 1] == right[j] { best = min(best, rows[i - 1][j - 1] + 1) }
                row.append(best)
            }
            rows.append(row)
        }
        return rows[left.count][right.count]
    }
}
