package spans

import (
	"encoding/binary"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// appendPassage appends p as a JSON object; label, already quoted, is left out where it is empty.
func appendPassage(dst []byte, p *passage, label []byte) []byte {
	dst = append(dst, '{')
	if len(label) > 0 {
		dst = append(append(append(dst, `"label":`...), label...), ',')
	}
	dst = append(dst, `"score":`...)
	dst = strconv.AppendFloat(dst, float64(p.score), 'g', -1, 32)
	dst = append(dst, `,"text":`...)
	dst = jsontext.Append(dst, p.text)
	dst = append(dst, `,"start":`...)
	dst = strconv.AppendInt(dst, int64(p.start), 10)
	dst = append(dst, `,"end":`...)
	dst = strconv.AppendInt(dst, int64(p.end), 10)
	return append(dst, '}')
}

// appendRow appends a BYTES element that is the JSON array of a row's passages.
func appendRow(dst []byte, row []passage, labels []label) []byte {
	head := len(dst)
	dst = append(tensor.AppendBytes(dst, ""), '[')
	for i := range row {
		if i > 0 {
			dst = append(dst, ',')
		}
		var quoted []byte
		if len(labels) > 0 {
			quoted = labels[row[i].label].quoted
		}
		dst = appendPassage(dst, &row[i], quoted)
	}
	dst = append(dst, ']')
	start := head + tensor.EncodedLen(0)
	binary.LittleEndian.PutUint32(dst[head:], uint32(len(dst)-start))
	return dst
}
