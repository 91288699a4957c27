package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/jfreymuth/vorbis"
)

// vorbisMagic begins the first header packet.
const vorbisMagic = "\x01vorbis"

// vorbisLayout is what the identification header says.
type vorbisLayout struct{ rate, channels int }

// readVorbisHead checks the identification header: what the decoder does not check itself.
func readVorbisHead(packet []byte) (l vorbisLayout, err error) {
	if len(packet) < 30 || string(packet[:7]) != vorbisMagic {
		return l, errors.New("the first header is truncated")
	}
	le := binary.LittleEndian
	rate := le.Uint32(packet[12:])
	l.channels, l.rate = int(packet[11]), int(min(rate, MaxRate+1))
	short, long := packet[28]&15, packet[28]>>4
	switch {
	case le.Uint32(packet[7:]) != 0:
		return l, fmt.Errorf("expected version 0, found %d", le.Uint32(packet[7:]))
	case rate == 0:
		return l, errors.New("expected a sampling rate above 0, found 0")
	case short < 6 || long > 13 || short > long:
		return l, fmt.Errorf("expected blocks of 64 to 8192 samples, found %d and %d", 1<<short, 1<<long)
	}
	return l, nil
}

func vorbisHeader(data []byte) (Header, error) {
	l, err := readVorbisHead(firstPacket(data))
	return Header{rate: l.rate, channels: l.channels, frames: unknown, likely: lastPosition(data)}, err
}

// openVorbis reads the three headers. The second one has comments only, which the decoder does not need.
func (d *Decoder) openVorbis(dec *vorbis.Decoder) error {
	for i := range 3 {
		packet, err := d.ogg.next()
		if err != nil {
			return fmt.Errorf("header %d: %w", i+1, err)
		}
		switch i {
		case 0:
			l, err := readVorbisHead(packet)
			if err != nil {
				return err
			}
			d.audio.Rate, d.audio.Channels = l.rate, l.channels
		case 1:
			continue
		case 2:
			if err := checkVorbisSetup(packet); err != nil {
				return fmt.Errorf("the setup header: %w", err)
			}
		}
		if err := dec.ReadHeader(packet); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) decodeVorbis(data []byte) error {
	d.ogg = oggReader{data: data, packet: d.ogg.packet[:0]}
	var dec vorbis.Decoder
	if err := d.openVorbis(&dec); err != nil {
		return err
	}
	if n := dec.BufferSize(); cap(d.packet) < n {
		d.packet = make([]float32, n)
	}
	var place placement
	for {
		packet, err := d.ogg.next()
		if errors.Is(err, errEnd) {
			break
		}
		if err != nil {
			return err
		}
		samples, err := dec.DecodeInto(packet, d.packet[:cap(d.packet)])
		if err != nil {
			return err
		}
		out, err := d.extend(len(samples))
		if err != nil {
			return err
		}
		copy(out, samples)
		place.page(&d.ogg, d.audio.Frames())
	}
	d.dropLast(place.excess)
	if place.start < 0 {
		d.dropFirst(-place.start)
	}
	return nil
}

// littleBits reads numbers of a packet, least significant bit first.
type littleBits struct {
	data []byte
	at   int // in bits
	over bool
}

// read returns the next n bits, at most 32. Behind the end it returns 0 and sets over.
func (b *littleBits) read(n int) uint32 {
	if b.at+n > 8*len(b.data) {
		b.at, b.over = 8*len(b.data), true
		return 0
	}
	v := uint32(0)
	for i := range n {
		v |= uint32(b.data[b.at>>3]>>(b.at&7)&1) << i
		b.at++
	}
	return v
}

// Limits of all codebooks of a file together: the entries and the numbers of all entries. Encoders stay far below.
const (
	maxBookEntries = 1 << 17
	maxBookValues  = 1 << 22
)

var errBook = errors.New("a codebook is damaged")

// checkVorbisSetup refuses codebooks that would let the decoder run forever or fill the memory: without entries or dimensions, without a
// code for every sequence of bits, too large, or truncated. Everything else that is wrong makes the decoder fail, which is safe.
func checkVorbisSetup(packet []byte) error {
	if len(packet) < 8 || string(packet[:7]) != "\x05vorbis" {
		return errBook
	}
	b, entries, values := &littleBits{data: packet[7:]}, 0, 0
	for range b.read(8) + 1 {
		n, dims, err := checkBook(b)
		if err != nil {
			return err
		}
		entries, values = entries+n, values+n*dims
		if entries > maxBookEntries || values > maxBookValues {
			return fmt.Errorf("expected codebooks of at most %d entries and %d numbers together, found more", maxBookEntries, maxBookValues)
		}
	}
	return checkFloors(b)
}

// checkBook reads one codebook and returns how many entries it has, of how many numbers each.
func checkBook(b *littleBits) (entries, dims int, err error) {
	const pattern = 0x564342
	if b.read(24) != pattern {
		return 0, 0, errBook
	}
	dims, entries = int(b.read(16)), int(b.read(24))
	if dims == 0 || entries == 0 || entries > maxBookEntries {
		return 0, 0, fmt.Errorf("a codebook has %d entries of %d numbers", entries, dims)
	}
	if err := checkCodes(b, entries); err != nil {
		return 0, 0, err
	}
	switch kind := b.read(4); kind {
	case 0:
	case 1, 2:
		b.read(32)
		b.read(32)
		size := int(b.read(4)) + 1
		b.read(1)
		n := dims * entries
		if kind == 1 {
			n = roots(entries, dims)
		}
		if b.at += n * size; b.at > 8*len(b.data) {
			return 0, 0, errTruncated
		}
	default:
		return 0, 0, errBook
	}
	if b.over {
		return 0, 0, errTruncated
	}
	return entries, dims, nil
}

// roots returns the largest number whose power of dims is at most entries.
func roots(entries, dims int) int {
	for n := 1; ; n++ {
		p := 1
		for range dims {
			if p *= n + 1; p > entries {
				return n
			}
		}
	}
}

// checkCodes reads the lengths of the codes of a book. Together they must take up all sequences of bits (Kraft's sum is 1), unless there
// is one code only, of one bit.
func checkCodes(b *littleBits, entries int) error {
	const one = 1 << 32
	sum, used := uint64(0), 0
	add := func(length uint32, n int) { sum, used = sum+uint64(n)*(one>>length), used+n }
	if ordered := b.read(1) == 1; ordered {
		length := b.read(5) + 1
		for at := 0; at < entries; length++ {
			n := int(b.read(bits.Len(uint(entries - at))))
			if b.over || length > 32 || n > entries-at {
				return errBook
			}
			add(length, n)
			at += n
		}
	} else {
		sparse := b.read(1) == 1
		for range entries {
			if !sparse || b.read(1) == 1 {
				add(b.read(5)+1, 1)
			}
			if b.over {
				return errTruncated
			}
		}
	}
	if single := used == 1 && sum == one/2; sum != one && !single {
		return errors.New("the codes of a codebook do not cover all sequences of bits")
	}
	return nil
}

// checkFloors refuses floors of type 0, which no encoder has written since 2002 and the decoder does not reproduce.
func checkFloors(b *littleBits) error {
	for range b.read(6) + 1 { // transforms, which have no meaning
		b.read(16)
	}
	for range b.read(6) + 1 {
		if kind := b.read(16); kind != 1 {
			return fmt.Errorf("expected floors of type 1, found type %d", kind)
		}
		skipFloor(b)
	}
	if b.over {
		return errTruncated
	}
	return nil
}

// skipFloor reads a floor of type 1.
func skipFloor(b *littleBits) {
	classes := make([]uint32, b.read(5))
	most := -1
	for i := range classes {
		classes[i] = b.read(4)
		most = max(most, int(classes[i]))
	}
	var dims [16]int
	for i := range most + 1 {
		dims[i] = int(b.read(3)) + 1
		subclass := b.read(2)
		if subclass > 0 {
			b.read(8)
		}
		for range 1 << subclass {
			b.read(8)
		}
	}
	b.read(2)
	size := int(b.read(4))
	for _, c := range classes {
		for range dims[c] {
			b.read(size)
		}
	}
}
