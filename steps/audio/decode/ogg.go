package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The header of an Ogg page (RFC 3533).
const (
	// pageHead is the bytes in front of the lengths of segments.
	pageHead = 27
	// pageContinued and pageLast are flags.
	pageContinued = 1
	pageLast      = 4
	// noGranule is the position of a page on which no packet ends.
	noGranule = -1
)

// oggPage is a page of an Ogg file.
type oggPage struct {
	flags    byte
	granule  int64 // position at the end of the last packet that ends here; noGranule if none does
	serial   uint32
	sequence uint32
	lacing   []byte // the lengths of segments, of which 255 is continued by the next
	body     []byte
	size     int
}

// readPage reads the page at the front of data.
func readPage(data []byte) (p oggPage, err error) {
	if len(data) < pageHead {
		return p, errTruncated
	}
	if string(data[:4]) != "OggS" || data[4] != 0 {
		return p, fmt.Errorf("expected a page of Ogg, found % x", data[:5])
	}
	le, segments := binary.LittleEndian, int(data[26])
	p.flags, p.granule = data[5], int64(le.Uint64(data[6:]))
	p.serial, p.sequence = le.Uint32(data[14:]), le.Uint32(data[18:])
	p.size = pageHead + segments
	if len(data) < p.size {
		return p, errTruncated
	}
	p.lacing = data[pageHead:p.size]
	for _, n := range p.lacing {
		p.size += int(n)
	}
	if len(data) < p.size {
		return p, errTruncated
	}
	p.body = data[pageHead+segments : p.size]
	if oggCRC(data[:p.size]) != le.Uint32(data[22:]) {
		return p, fmt.Errorf("the checksum of page %d is wrong", p.sequence)
	}
	return p, nil
}

// crcTable is that of the polynomial 04c11db7, most significant bit first.
var crcTable = func() (t [256]uint32) {
	for i := range t {
		c := uint32(i) << 24
		for range 8 {
			c = c<<1 ^ -(c>>31)&0x04c11db7
		}
		t[i] = c
	}
	return t
}()

// oggCRC returns the checksum of a page, whose own bytes count as 0.
func oggCRC(page []byte) uint32 {
	c := uint32(0)
	for i, v := range page {
		if i >= 22 && i < 26 {
			v = 0
		}
		c = c<<8 ^ crcTable[byte(c>>24)^v]
	}
	return c
}

// firstPacket returns the first packet of a file, as far as it is on the first page. It checks nothing.
func firstPacket(data []byte) []byte {
	if len(data) < pageHead {
		return nil
	}
	at, n := pageHead+int(data[26]), 0
	for _, v := range data[pageHead:min(at, len(data))] {
		if n += int(v); v < 255 {
			break
		}
	}
	return data[min(at, len(data)):min(at+n, len(data))]
}

// lastPosition returns the position of the last page of a file, which is the number of frames of most files. The page is not checked.
// It adds what decoders may drop at both ends.
func lastPosition(data []byte) int64 {
	const dropped = 1 << 14
	at := bytes.LastIndex(data, []byte("OggS"))
	if at < 0 || len(data)-at < pageHead {
		return 0
	}
	return max(int64(binary.LittleEndian.Uint64(data[at+6:]))&(1<<62-1), 0) + dropped
}

// oggReader reads the packets of the first stream of a file. Pages of other streams, and what follows the last page of the stream, are
// skipped.
type oggReader struct {
	data    []byte
	page    oggPage
	started bool
	packet  []byte // a packet that several pages have parts of
	partial bool   // packet waits for its end
	// ends is set if the last packet that next returned is the last to end on its page, whose position is page.granule.
	ends bool
}

// last reports whether the current page is the stream's last one.
func (r *oggReader) last() bool { return r.page.flags&pageLast != 0 }

// errEnd is returned by next behind the last packet.
var errEnd = errors.New("no more packets")

// next returns the next packet, borrowed until the next call, or errEnd.
func (r *oggReader) next() ([]byte, error) {
	for {
		for len(r.page.lacing) > 0 {
			packet, whole := r.segments()
			if !whole {
				r.packet, r.partial = append(r.packet, packet...), true
				break
			}
			if r.partial {
				r.packet, r.partial = append(r.packet, packet...), false
				packet = r.packet
				r.packet = r.packet[:0]
			}
			r.ends = !hasEnd(r.page.lacing)
			return packet, nil
		}
		if err := r.nextPage(); err != nil {
			return nil, err
		}
	}
}

// segments takes the segments of one packet from the page. whole is false if the packet goes on with the next page.
func (r *oggReader) segments() (packet []byte, whole bool) {
	n := 0
	for i, v := range r.page.lacing {
		if n += int(v); v < 255 {
			packet, r.page.body = r.page.body[:n], r.page.body[n:]
			r.page.lacing = r.page.lacing[i+1:]
			return packet, true
		}
	}
	packet, r.page.body, r.page.lacing = r.page.body[:n], nil, nil
	return packet, false
}

// hasEnd reports whether a packet ends in these segments.
func hasEnd(lacing []byte) bool {
	for _, v := range lacing {
		if v < 255 {
			return true
		}
	}
	return false
}

// nextPage reads the stream's next page.
func (r *oggReader) nextPage() error {
	before := r.page
	for {
		if len(r.data) == 0 || r.started && r.last() {
			if r.partial {
				return errTruncated
			}
			return errEnd
		}
		p, err := readPage(r.data)
		if err != nil {
			return err
		}
		r.data = r.data[p.size:]
		if r.started && p.serial != before.serial {
			continue
		}
		if r.started && p.sequence != before.sequence+1 {
			return fmt.Errorf("page %d is missing", before.sequence+1)
		}
		if p.flags&pageContinued != 0 != r.partial {
			return fmt.Errorf("page %d does not continue the packet of the page before", p.sequence)
		}
		r.page, r.started = p, true
		return nil
	}
}
