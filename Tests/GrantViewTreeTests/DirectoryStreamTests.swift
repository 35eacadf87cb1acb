import Glibc
import GrantSystem
import Testing
import GrantViewTree

@Suite struct AListing {
    @Test("A directory read in pieces yields each entry once beside other readers")
    func pieces() throws {
        let place = try KnownPlace()
        for number in 0..<100 { try place.make("f\(number)") }
        let directory = try FileDescriptor.open(place.path.utf8, O_RDONLY | O_DIRECTORY)
        // More streams than keep their entries. Each stops after its first entry.
        var others = [DirectoryStream](repeating: DirectoryStream(), count: 1100)
        for index in others.indices {
            #expect(others[index].seek(0, in: directory.number) == 0)
            var count = 0
            #expect(
                others[index].forEach(in: directory.number) { _ in
                    count += 1
                    return count < 2
                } == 0)
        }
        let own = try FileDescriptor.open(place.path.utf8, O_RDONLY | O_DIRECTORY)
        var stream = DirectoryStream()
        var names: [String] = []
        var offset: UInt64 = 0
        while true {
            #expect(stream.seek(offset, in: own.number) == 0)
            var taken = 0
            let error = stream.forEach(in: own.number) { entry in
                if taken == 7 { return false }
                taken += 1
                names.append(String(cString: entry.name))
                offset = entry.offset
                return true
            }
            #expect(error == 0)
            if taken == 0 { break }
        }
        #expect(names.count == 102 && Set(names).count == 102)
        withExtendedLifetime(others) {}
    }

    @Test("A directory stream yields all entries from its start after a read at its end")
    func endFirst() throws {
        let place = try KnownPlace()
        for number in 0..<5 { try place.make("f\(number)") }
        func read(_ stream: inout DirectoryStream, from offset: UInt64, _ directory: borrowing FileDescriptor) -> (count: Int, end: UInt64)
        {
            #expect(stream.seek(offset, in: directory.number) == 0)
            var (count, end) = (0, offset)
            let error = stream.forEach(in: directory.number) { entry in
                (count, end) = (count + 1, entry.offset)
                return true
            }
            #expect(error == 0)
            return (count, end)
        }
        var stream = DirectoryStream()
        let (count, end) = read(&stream, from: 0, try FileDescriptor.open(place.path.utf8, O_RDONLY | O_DIRECTORY))
        #expect(count == 7)
        var other = DirectoryStream()
        let directory = try FileDescriptor.open(place.path.utf8, O_RDONLY | O_DIRECTORY)
        #expect(read(&other, from: end, directory).count == 0)
        #expect(read(&other, from: 0, directory).count == 7)
    }
}
