package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// flacInfo is what the block STREAMINFO says.
type flacInfo struct {
	rate, channels, bits int
	frames               int64 // 0 if it is not known
}

// readFLAC reads the metadata of a file (RFC 9639, section 8) and returns its frames, the rest.
func readFLAC(data []byte) (info flacInfo, frames []byte, err error) {
	data = data[min(id3Size(data), len(data)):]
	if len(data) < 4 || string(data[:4]) != "fLaC" {
		return info, nil, errTruncated
	}
	data = data[4:]
	for first, last := true, false; !last; first = false {
		if len(data) < 4 {
			return info, nil, errTruncated
		}
		head := binary.BigEndian.Uint32(data)
		kind, n := head>>24&0x7f, int(head&0xffffff)
		if last = head>>31 == 1; n > len(data)-4 {
			return info, nil, errTruncated
		}
		if first && (kind != 0 || n < 18) {
			return info, nil, errors.New("expected STREAMINFO as the first block of metadata, found another one")
		}
		if first {
			v := binary.BigEndian.Uint64(data[4+10:])
			info = flacInfo{rate: int(v >> 44), channels: int(v>>41&7) + 1, bits: int(v>>36&31) + 1, frames: int64(v & (1<<36 - 1))}
		}
		data = data[4+n:]
	}
	if info.rate == 0 {
		return info, nil, errors.New("expected a sampling rate above 0, found 0")
	}
	return info, data, nil
}

func flacHeader(data []byte) (Header, error) {
	info, _, err := readFLAC(data)
	h := Header{rate: info.rate, channels: info.channels, frames: info.frames}
	if h.frames == 0 {
		h.frames = unknown
	}
	return h, err
}

// flac has the memory of a FLAC decoder. Frames are in RFC 9639, section 9.
type flac struct {
	bits     bigBits
	channels [8][]int64
	size     int // samples of the current block
	depth    int // bits of a sample
}

func (d *Decoder) decodeFLAC(data []byte) error {
	info, frames, err := readFLAC(data)
	if err != nil {
		return err
	}
	d.audio.Rate, d.audio.Channels = info.rate, info.channels
	total := int64(0)
	f := &d.flac
	f.bits = bigBits{data: frames}
	defer func() { f.bits = bigBits{} }()
	for f.bits.more() && (info.frames == 0 || total < info.frames) {
		if err := f.frame(&info); err != nil {
			return fmt.Errorf("at sample %d: %w", total, err)
		}
		total += int64(f.size)
		if err := d.addFLAC(&info); err != nil {
			return err
		}
	}
	if total < info.frames {
		return fmt.Errorf("truncated, it has %d of %d samples", total, info.frames)
	}
	return nil
}

// addFLAC adds the samples of the current frame to the output.
func (d *Decoder) addFLAC(info *flacInfo) error {
	f := &d.flac
	out, err := d.extend(f.size * info.channels)
	if err != nil {
		return err
	}
	scale := float32(math.Ldexp(1, 1-f.depth))
	for c := range info.channels {
		for i, v := range f.channels[c] {
			out[i*info.channels+c] = float32(v) * scale
		}
	}
	return nil
}

var errFLAC = errors.New("a frame is damaged")

// The ways to store two channels.
const (
	leftSide  = 8
	sideRight = 9
	midSide   = 10
)

// frame reads one frame into f.channels.
func (f *flac) frame(info *flacInfo) error {
	b := &f.bits
	b.align()
	start := b.at
	layout, err := f.header(info)
	if err != nil {
		return err
	}
	for c := range info.channels {
		wide := f.depth
		if layout == sideRight && c == 0 || (layout == leftSide || layout == midSide) && c == 1 {
			wide++
		}
		f.channels[c] = slices.Grow(f.channels[c][:0], f.size)[:f.size]
		if err := f.subframe(f.channels[c], wide); err != nil {
			return err
		}
	}
	b.align()
	if b.over {
		return errTruncated
	}
	if check := crc16(b.data[start:b.at]); uint32(check) != b.read(16) || b.over {
		return errors.New("the checksum of a frame is wrong")
	}
	join(f.channels[0], f.channels[1], layout)
	return nil
}

// header reads the header of a frame and returns its layout: the number of channels less one, or a way to store two.
func (f *flac) header(info *flacInfo) (layout int, err error) {
	b := &f.bits
	start := b.at
	if sync := b.read(15); sync != 0x7ffc {
		return 0, errors.New("no frame was found")
	}
	b.read(1) // whether the number below is of samples or frames
	size, rate := b.read(4), b.read(4)
	layout = int(b.read(4))
	depth := b.read(3)
	b.read(1)
	for n := bits.LeadingZeros8(^uint8(b.read(8))); n > 1; n-- { // a number in the manner of UTF-8
		b.read(8)
	}
	if f.size = blockSize(b, int(size)); f.size == 0 {
		return 0, errFLAC
	}
	switch rate { // STREAMINFO has it, too
	case 12:
		b.read(8)
	case 13, 14:
		b.read(16)
	}
	f.depth = [8]int{info.bits, 8, 12, 0, 16, 20, 24, 32}[depth]
	channels := layout + 1
	if layout >= leftSide {
		channels = 2
	}
	if f.depth != info.bits || channels != info.channels || layout > midSide {
		return 0, fmt.Errorf("expected %d channels of %d bits in every frame, found another number", info.channels, info.bits)
	}
	b.align() // the header has whole bytes
	if check := crc8(b.data[start:b.at]); uint32(check) != b.read(8) {
		return 0, errors.New("the checksum of a frame's header is wrong")
	}
	return layout, nil
}

// blockSize returns the samples of a frame, of which the header has a code; 0 for a code without meaning.
func blockSize(b *bigBits, code int) int {
	switch {
	case code == 0:
		return 0
	case code == 1:
		return 192
	case code <= 5:
		return 576 << (code - 2)
	case code == 6:
		return int(b.read(8)) + 1
	case code == 7:
		return int(b.read(16)) + 1
	}
	return 256 << (code - 8)
}

// join undoes the way that two channels were stored.
func join(a, b []int64, layout int) {
	switch layout {
	case leftSide:
		for i, v := range a {
			b[i] = v - b[i]
		}
	case sideRight:
		for i, v := range b {
			a[i] += v
		}
	case midSide:
		for i, side := range b {
			mid := a[i]<<1 | side&1
			a[i], b[i] = (mid+side)>>1, (mid-side)>>1
		}
	}
}

// subframe reads the samples of a channel, of so many bits each.
func (f *flac) subframe(out []int64, depth int) error {
	b := &f.bits
	if b.read(1) != 0 {
		return errFLAC
	}
	kind, wasted := int(b.read(6)), 0
	if b.read(1) == 1 {
		if wasted = b.zeros() + 1; wasted >= depth {
			return errFLAC
		}
		depth -= wasted
	}
	var err error
	switch {
	case kind == 0:
		v := b.signed(depth)
		for i := range out {
			out[i] = v
		}
	case kind == 1:
		for i := range out {
			out[i] = b.signed(depth)
		}
	case kind >= 8 && kind <= 12:
		err = f.fixed(out, depth, kind-8)
	case kind >= 32:
		err = f.predicted(out, depth, kind-31)
	default:
		err = errFLAC
	}
	if b.over {
		return errTruncated
	}
	if wasted > 0 {
		for i := range out {
			out[i] <<= wasted
		}
	}
	return err
}

// fixed reads a subframe with a predictor of an order from 0 to 4, whose coefficients are binomial.
func (f *flac) fixed(out []int64, depth, order int) error {
	if order > len(out) {
		return errFLAC
	}
	for i := range order {
		out[i] = f.bits.signed(depth)
	}
	if err := f.residual(out, order); err != nil {
		return err
	}
	for i := order; i < len(out); i++ {
		switch order {
		case 1:
			out[i] += out[i-1]
		case 2:
			out[i] += 2*out[i-1] - out[i-2]
		case 3:
			out[i] += 3*out[i-1] - 3*out[i-2] + out[i-3]
		case 4:
			out[i] += 4*out[i-1] - 6*out[i-2] + 4*out[i-3] - out[i-4]
		}
	}
	return nil
}

// predicted reads a subframe with a linear predictor.
func (f *flac) predicted(out []int64, depth, order int) error {
	b := &f.bits
	if order > len(out) {
		return errFLAC
	}
	for i := range order {
		out[i] = b.signed(depth)
	}
	precision, shift := int(b.read(4))+1, b.signed(5)
	if precision == 16 || shift < 0 {
		return errFLAC
	}
	var coefficients [32]int64
	for i := range order {
		coefficients[order-1-i] = b.signed(precision)
	}
	if err := f.residual(out, order); err != nil {
		return err
	}
	c := coefficients[:order]
	for i := order; i < len(out); i++ {
		sum := int64(0)
		for k, v := range out[i-order : i] {
			sum += v * c[k]
		}
		out[i] += sum >> shift
	}
	return nil
}

// residual reads what the predictor leaves of the samples from order on: Rice codes in partitions.
func (f *flac) residual(out []int64, order int) error {
	b := &f.bits
	method, partitions := b.read(2), int(b.read(4))
	if method > 1 || len(out)&(1<<partitions-1) != 0 || len(out)>>partitions < order {
		return errFLAC
	}
	width := 4 + int(method)
	escape := uint32(1)<<width - 1
	for p := range 1 << partitions {
		part := out[p*(len(out)>>partitions):][:len(out)>>partitions]
		if p == 0 {
			part = part[order:]
		}
		k := b.read(width)
		if b.over {
			return errTruncated
		}
		if k == escape {
			n := int(b.read(5))
			for i := range part {
				part[i] = b.signed(n)
			}
			continue
		}
		for i := range part {
			v := uint64(b.zeros())<<k | uint64(b.read(int(k)))
			part[i] = int64(v>>1) ^ -int64(v&1)
			if b.over {
				return errTruncated
			}
		}
	}
	return nil
}

// bigBits reads numbers, most significant bit first.
type bigBits struct {
	data  []byte
	at    int    // the next byte
	cache uint64 // bits that have been taken from data, at the upper end
	n     int    // how many
	over  bool   // more was read than there is
}

// more reports whether there are more bits.
func (b *bigBits) more() bool { return b.n > 0 || b.at < len(b.data) }

// fill takes bytes until the cache has more than 56 bits, or all that there are.
func (b *bigBits) fill() {
	for b.n <= 56 && b.at < len(b.data) {
		b.cache |= uint64(b.data[b.at]) << (56 - b.n)
		b.at++
		b.n += 8
	}
}

// read returns the next n bits, at most 32. Behind the end it returns 0 and sets over.
func (b *bigBits) read(n int) uint32 {
	if b.n < n {
		if b.fill(); b.n < n {
			b.over, b.n, b.cache = true, 0, 0
			return 0
		}
	}
	v := b.cache >> (64 - n)
	b.cache <<= n
	b.n -= n
	if b.n == 0 {
		b.cache = 0
	}
	return uint32(v)
}

// signed returns the next n bits, at most 33, as a number in two's complement.
func (b *bigBits) signed(n int) int64 {
	if n == 0 {
		return 0
	}
	v := uint64(b.read(min(n, 32)))
	if n > 32 {
		v = v<<1 | uint64(b.read(1))
	}
	return int64(v<<(64-n)) >> (64 - n)
}

// zeros returns the number of zeros before the next one, which it takes, too.
func (b *bigBits) zeros() int {
	count := 0
	for {
		if b.n == 0 {
			if b.fill(); b.n == 0 {
				b.over = true
				return 0
			}
		}
		z := bits.LeadingZeros64(b.cache)
		if z < b.n {
			b.cache <<= z + 1
			b.n -= z + 1
			return count + z
		}
		count += b.n
		b.cache, b.n = 0, 0
	}
}

// align drops the bits up to the next byte and puts back the bytes that have not been used.
func (b *bigBits) align() {
	b.n -= b.n % 8
	b.at -= b.n / 8
	b.cache, b.n = 0, 0
}

// The checksums of FLAC: polynomials 07 and 8005, most significant bit first.
var (
	crc8Table = func() (t [256]uint8) {
		for i := range t {
			c := uint8(i)
			for range 8 {
				c = c<<1 ^ -(c>>7)&0x07
			}
			t[i] = c
		}
		return t
	}()
	crc16Table = func() (t [256]uint16) {
		for i := range t {
			c := uint16(i) << 8
			for range 8 {
				c = c<<1 ^ -(c>>15)&0x8005
			}
			t[i] = c
		}
		return t
	}()
)

func crc8(data []byte) (c uint8) {
	for _, v := range data {
		c = crc8Table[c^v]
	}
	return c
}

func crc16(data []byte) (c uint16) {
	for _, v := range data {
		c = c<<8 ^ crc16Table[byte(c>>8)^v]
	}
	return c
}
