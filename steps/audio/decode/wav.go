package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Format tags of the chunk "fmt ".
const (
	wavPCM        = 1
	wavFloat      = 3
	wavALaw       = 6
	wavMuLaw      = 7
	wavExtensible = 0xfffe
)

// wavTags names the codecs of WAV files that are refused.
var wavTags = map[uint16]string{2: "Microsoft ADPCM", 0x11: "IMA ADPCM", 0x31: "GSM 6.10", 0x50: "MPEG", 0x55: "MP3", 0xff: "AAC", 0x161: "WMA"}

// wavFile is a WAV file whose chunks have been read.
type wavFile struct {
	tag            uint16
	channels, rate int
	size           int // bytes of a sample
	samples        []byte
}

// subformat is the end of the GUID of WAVE_FORMAT_EXTENSIBLE, which begins with the format tag.
const subformat = "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"

// chunkHead is the bytes of the name and the length of a chunk.
const chunkHead = 8

// parseWAV reads the chunks of a file: "fmt " and "data", and in RF64 files "ds64", which has the length of "data".
func parseWAV(data []byte) (w wavFile, err error) {
	le, long := binary.LittleEndian, uint64(math.MaxUint64)
	for at := 12; ; {
		if len(data)-at < chunkHead {
			return w, errors.New("truncated, it has no chunk 'data'")
		}
		name, n := data[at:at+4], uint64(le.Uint32(data[at+4:]))
		at += chunkHead
		rest := uint64(len(data) - at)
		if string(name) == "data" {
			if n == math.MaxUint32 && long != math.MaxUint64 {
				n = long
			} else if n == math.MaxUint32 { // of a program that did not know the length when it wrote the header
				n = rest
			}
			if n > rest {
				return w, fmt.Errorf("truncated, the chunk 'data' has %d of %d bytes", rest, n)
			}
			err := w.setData(data[at : at+int(n)])
			return w, err
		}
		if n > rest {
			return w, fmt.Errorf("truncated in the chunk %q", name)
		}
		body := data[at : at+int(n)]
		switch string(name) {
		case "fmt ":
			if err := w.setFormat(body); err != nil {
				return w, err
			}
		case "ds64":
			if len(body) >= 16 {
				long = le.Uint64(body[8:])
			}
		}
		at += min(int(n+n%2), len(data)-at)
	}
}

// setFormat reads the chunk "fmt ".
func (w *wavFile) setFormat(body []byte) error {
	le := binary.LittleEndian
	if len(body) < 16 {
		return fmt.Errorf("truncated, the chunk 'fmt ' has %d bytes, expected 16 or more", len(body))
	}
	w.tag, w.channels = le.Uint16(body), int(le.Uint16(body[2:]))
	rate, align := le.Uint32(body[4:]), int(le.Uint16(body[12:]))
	w.rate = int(min(rate, MaxRate+1))
	if w.tag == wavExtensible {
		if len(body) < 40 || string(body[26:40]) != subformat {
			return errors.New("expected a WAVE_FORMAT_EXTENSIBLE header of a known format, found another one")
		}
		w.tag = le.Uint16(body[24:])
	}
	if rate == 0 {
		return errors.New("expected a sampling rate above 0, found 0")
	}
	if w.channels == 0 || align%w.channels != 0 {
		return fmt.Errorf("%d bytes cannot be shared by %d channels", align, w.channels)
	}
	w.size = align / w.channels
	return w.checkSize(int(le.Uint16(body[14:])))
}

// checkSize compares the size of a sample with the format. PCM samples of 12 or 20 bits are in the upper bits of 2 or 3 bytes.
func (w *wavFile) checkSize(bits int) error {
	var ok bool
	var want string
	switch w.tag {
	case wavPCM:
		ok, want = w.size >= 1 && w.size <= 4 && bits > 0 && (bits+7)/8 <= w.size, "PCM of 8, 16, 24 or 32 bits"
	case wavFloat:
		ok, want = w.size == 4 || w.size == 8, "floating point numbers of 32 or 64 bits"
	case wavALaw, wavMuLaw:
		ok, want = w.size == 1, "A-law or mu-law of 8 bits"
	default:
		name := wavTags[w.tag]
		if name == "" {
			name = fmt.Sprintf("format %#x", w.tag)
		}
		return fmt.Errorf("expected PCM, floating point, A-law or mu-law, found %s", name)
	}
	if !ok {
		return fmt.Errorf("expected %s, found %d bits in %d bytes", want, bits, w.size)
	}
	return nil
}

// setData sets the samples. A frame that is cut off at the end is dropped.
func (w *wavFile) setData(body []byte) error {
	if w.size == 0 {
		return errors.New("the chunk 'data' is not behind a chunk 'fmt '")
	}
	w.samples = body[:len(body)-len(body)%(w.size*w.channels)]
	return nil
}

func wavFileHeader(data []byte) (Header, error) {
	w, err := parseWAV(data)
	if err != nil {
		return Header{}, err
	}
	return Header{rate: w.rate, channels: w.channels, frames: int64(len(w.samples) / (w.size * w.channels))}, nil
}

func (d *Decoder) decodeWAV(data []byte) error {
	w, err := parseWAV(data)
	if err != nil {
		return err
	}
	d.audio.Rate, d.audio.Channels = w.rate, w.channels
	out, err := d.extend(len(w.samples) / w.size)
	if err != nil {
		return err
	}
	switch w.tag {
	case wavFloat:
		fromFloats(out, w.samples, w.size)
	case wavALaw:
		fromTable(out, w.samples, &aLaw)
	case wavMuLaw:
		fromTable(out, w.samples, &muLaw)
	default:
		if w.size == 1 { // the only PCM without a sign
			for i, v := range w.samples {
				out[i] = float32(int(v)-128) / 128
			}
			return nil
		}
		fromPCM(out, w.samples, w.size, 8*w.size)
	}
	return nil
}

// fromPCM converts signed little-endian samples of size bytes, whose range is that of so many bits.
func fromPCM(out []float32, data []byte, size, bits int) {
	scale := float32(math.Ldexp(1, 1-bits))
	switch size {
	case 1:
		for i := range out {
			out[i] = float32(int8(data[i])) * scale
		}
	case 2:
		for i := range out {
			out[i] = float32(int16(binary.LittleEndian.Uint16(data[2*i:]))) * scale
		}
	case 3:
		for i := range out {
			b := data[3*i : 3*i+3]
			out[i] = float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)>>8) * scale
		}
	case 4:
		for i := range out {
			out[i] = float32(int32(binary.LittleEndian.Uint32(data[4*i:]))) * scale
		}
	}
}

// fromFloats converts numbers of 4 or 8 bytes.
func fromFloats(out []float32, data []byte, size int) {
	for i := range out {
		if size == 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		} else {
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
	}
}

func fromTable(out []float32, data []byte, table *[256]float32) {
	for i, v := range data {
		out[i] = table[v]
	}
}

// aLaw and muLaw have the samples of the codes of ITU-T G.711.
var (
	aLaw = g711(func(code byte) int {
		code ^= 0x55
		v, exponent := int(code&15)<<4+8, code>>4&7
		if exponent > 0 {
			v = (v + 0x100) << (exponent - 1)
		}
		if code&0x80 == 0 {
			return -v
		}
		return v
	})
	muLaw = g711(func(code byte) int {
		code = ^code
		v := (int(code&15)<<3+0x84)<<(code>>4&7) - 0x84
		if code&0x80 != 0 {
			return -v
		}
		return v
	})
)

func g711(sample func(code byte) int) (t [256]float32) {
	for i := range t {
		t[i] = float32(sample(byte(i))) / (1 << 15)
	}
	return t
}
