package decode

import "encoding/binary"

// FixOgg sets the checksums of the pages at the front of a file.
func FixOgg(file []byte) {
	for len(file) >= pageHead && string(file[:4]) == "OggS" {
		size := pageHead + int(file[26])
		for _, n := range file[pageHead:min(size, len(file))] {
			size += int(n)
		}
		if size > len(file) {
			return
		}
		binary.LittleEndian.PutUint32(file[22:], oggCRC(file[:size]))
		file = file[size:]
	}
}
