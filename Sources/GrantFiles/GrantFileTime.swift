import CGrantTOML
import Glibc
import GrantModel

/// Converts times of a TOML document.
enum GrantFileTime {
    /// Returns nil for years that `Instant` cannot represent.
    static func instant(_ time: ctoml_time) -> Instant? {
        guard (1678..<2262).contains(time.year) else { return nil }
        var fields = tm()
        (fields.tm_year, fields.tm_mon, fields.tm_mday) = (Int32(time.year - 1900), Int32(time.month - 1), Int32(time.day))
        (fields.tm_hour, fields.tm_min, fields.tm_sec) = (Int32(time.hour), Int32(time.minute), Int32(time.second))
        fields.tm_isdst = -1
        let seconds = time.has_offset ? Int64(timegm(&fields)) - time.offset_minutes * 60 : Int64(mktime(&fields))
        return Instant(nanoseconds: Instant(seconds: seconds).nanoseconds + time.nanosecond)
    }

    /// In UTC, to the nanosecond.
    static func text(_ instant: Instant) -> String {
        let (quotient, remainder) = instant.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        var seconds = time_t(remainder < 0 ? quotient - 1 : quotient)
        let rest = remainder < 0 ? remainder + 1_000_000_000 : remainder
        var fields = tm()
        gmtime_r(&seconds, &fields)
        let padded = { (value: Int64, count: Int) in
            let digits = String(value)
            return String(repeating: "0", count: max(0, count - digits.count)) + digits
        }
        var text =
            padded(Int64(fields.tm_year) + 1900, 4) + "-" + padded(Int64(fields.tm_mon) + 1, 2) + "-" + padded(Int64(fields.tm_mday), 2)
        text += "T" + [fields.tm_hour, fields.tm_min, fields.tm_sec].map { padded(Int64($0), 2) }.joined(separator: ":")
        return text + (rest == 0 ? "" : "." + padded(rest, 9)) + "Z"
    }
}
