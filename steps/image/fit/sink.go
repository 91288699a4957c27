package fit

import (
	"encoding/binary"

	"github.com/tutti-server/tutti/steps/image/kernels"
)

// sink writes the rows of a resize to the output of a row of the batch. It implements opencv.Sink.
type sink struct {
	o   *options
	f   *frame
	dst []byte
}

// Put implements opencv.Sink.
func (s *sink) Put(i int, row []byte) {
	f, y := s.f, s.f.top+i
	if s.o.bytes {
		line := s.dst[3*y*f.outW:][:3*f.w]
		if !s.o.reverse {
			copy(line, row)
			return
		}
		for len(line) >= 3 && len(row) >= 3 {
			line[0], line[1], line[2] = row[2], row[1], row[0]
			line, row = line[3:], row[3:]
		}
		return
	}
	var planes [3][]byte
	for c := range planes {
		planes[s.o.sample(c)] = s.dst[4*((c*f.outH+y)*f.outW):]
	}
	kernels.Planes(&planes, row, s.o.tables(), s.o.lines)
}

// pad fills the output around the image: 0 at the right, black above and below.
func (s *step) pad(dst []byte, f *frame) {
	switch {
	case s.height > 0:
		size, rows := 4, 3*f.outH
		if s.bytes {
			size, rows = 3, f.outH
		}
		for y := range rows {
			clear(dst[size*(y*f.outW+f.w) : size*(y+1)*f.outW])
		}
	case s.bytes:
		clear(dst)
	default:
		n := 4 * f.outW * f.outH
		for c := range 3 {
			for i := 0; i < n; i += 4 {
				binary.LittleEndian.PutUint32(dst[c*n+i:], s.table[c][0])
			}
		}
	}
}
