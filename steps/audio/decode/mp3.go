package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hajimehoshi/go-mp3"
)

// id3Size returns the bytes of the ID3v2 tag in front of data, or 0 if there is none. It may exceed the length of data.
func id3Size(data []byte) int {
	const head, footer = 10, 0x10
	if len(data) < head || string(data[:3]) != "ID3" {
		return 0
	}
	n := head
	if data[5]&footer != 0 {
		n += head
	}
	return n + int(data[6]&0x7f)<<21 + int(data[7]&0x7f)<<14 + int(data[8]&0x7f)<<7 + int(data[9]&0x7f)
}

// decoderDelay is the delay of a decoder of layer III in frames, which comes on top of the encoder's.
const decoderDelay = 529

// infoTag is what the first frame of most files says instead of having samples: the number of frames, and how many samples the encoder
// has added in front and at the end.
type infoTag struct {
	frames         int // of MPEG audio
	delay, padding int
}

// readInfo reads the tag "Xing" or "Info" of a frame. Its place follows from the header.
func readInfo(frame []byte) (infoTag, bool) {
	var t infoTag
	if len(frame) < 4 {
		return t, false
	}
	at, mono := 4, frame[3]>>6 == 3
	switch mpeg1 := frame[1]>>3&3 == 3; {
	case mpeg1 && !mono:
		at += 32
	case mpeg1, !mono:
		at += 17
	default:
		at += 9
	}
	const frames, bytes, toc, quality = 1, 2, 4, 8
	if len(frame) < at+8 || string(frame[at:at+4]) != "Xing" && string(frame[at:at+4]) != "Info" {
		return t, false
	}
	be := binary.BigEndian
	flags := be.Uint32(frame[at+4:])
	rest := frame[at+8:]
	for _, field := range [...]struct {
		flag uint32
		size int
	}{{frames, 4}, {bytes, 4}, {toc, 100}, {quality, 4}} {
		if flags&field.flag == 0 {
			continue
		}
		if len(rest) < field.size {
			return t, true
		}
		if field.flag == frames {
			t.frames = int(be.Uint32(rest))
		}
		rest = rest[field.size:]
	}
	const gaps = 21 // behind the name of the encoder and other fields
	if len(rest) >= gaps+3 {
		v := int(rest[gaps])<<16 | int(rest[gaps+1])<<8 | int(rest[gaps+2])
		t.delay, t.padding = v>>12, v&0xfff
	}
	return t, true
}

// mp3Frame is the header of a frame.
type mp3Frame struct {
	rate, channels int
	samples        int // per channel
	size           int // bytes
}

// mp3Rates has the bit rates in kbit/s: of MPEG 1, and of MPEG 2.
var mp3Rates = [2][16]int{
	{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0},
	{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0},
}

// readMP3Frame parses the header at the front of data.
func readMP3Frame(data []byte) (f mp3Frame, err error) {
	if !isMP3Frame(data) {
		return f, errNoFrame
	}
	f = mp3Frame{rate: [...]int{44100, 48000, 32000}[data[2]>>2&3], channels: 2, samples: 1152}
	if data[3]>>6 == 3 {
		f.channels = 1
	}
	version := 0
	switch data[1] >> 3 & 3 {
	case 0:
		return f, errors.New("MPEG 2.5, with sampling rates below 16 kHz, is not supported; expected MPEG 1 or 2")
	case 2:
		version, f.rate, f.samples = 1, f.rate/2, 576
	}
	kbits := mp3Rates[version][data[2]>>4]
	if kbits == 0 {
		return f, errors.New("a free bit rate is not supported")
	}
	f.size = f.samples/8*kbits*1000/f.rate + int(data[2]>>1&1)
	return f, nil
}

var errNoFrame = errors.New("no frame of audio was found")

// mp3File is a file whose frames have been counted.
type mp3File struct {
	mp3Frame
	tag    infoTag
	frames int
	audio  []byte // the frames, without tags
}

// scanMP3 finds the frames of a file.
func scanMP3(data []byte) (m mp3File, err error) {
	data = data[min(id3Size(data), len(data)):]
	if m.mp3Frame, err = readMP3Frame(data); err != nil {
		return m, err
	}
	var tagged bool
	if m.tag, tagged = readInfo(data[:min(m.size, len(data))]); tagged {
		data = data[min(m.size, len(data)):]
	}
	at := 0
	for {
		f, err := readMP3Frame(data[at:])
		if err != nil || f.rate != m.rate || f.channels != m.channels {
			if isEnd(data[at:]) {
				break
			}
			return m, fmt.Errorf("frame %d is not one of %d channels at %d Hz", m.frames+1, m.channels, m.rate)
		}
		if f.size > len(data)-at {
			break // as in mpg123, a part of a frame counts only if the tag says so
		}
		at += f.size
		m.frames++
	}
	if m.frames == 0 {
		return m, errNoFrame
	}
	if m.frames < m.tag.frames {
		return m, fmt.Errorf("truncated, it has %d of %d frames", m.frames, m.tag.frames)
	}
	m.audio = data[:at]
	return m, nil
}

// isEnd reports whether only tags or zeros follow.
func isEnd(data []byte) bool {
	for _, tag := range []string{"TAG", "APETAGEX", "LYRICSBEGIN", "ID3", "3DI"} {
		if bytes.HasPrefix(data, []byte(tag)) {
			return true
		}
	}
	return len(bytes.TrimLeft(data, "\x00")) == 0
}

func mp3Header(data []byte) (Header, error) {
	m, err := scanMP3(data)
	return Header{rate: m.rate, channels: m.channels, frames: int64(m.frames) * int64(m.samples)}, err
}

// onlyReader hides that a reader can seek, for which the decoder would read the file twice.
type onlyReader struct{ io.Reader }

// fromMP3 converts a sample of the decoder, which gives stereo of 16 bits for every file, cut off towards 0: the middle of what has been cut
// off to that number.
func fromMP3(v int16) float32 {
	const most = 1<<15 - 1
	switch {
	case v > 0:
		return (float32(v) + 0.5) / most
	case v < 0:
		return (float32(v) - 0.5) / most
	}
	return 0
}

// decodeMP3 decodes all frames, and then drops the samples that the encoder and the decoder have added.
func (d *Decoder) decodeMP3(data []byte) error {
	m, err := scanMP3(data)
	if err != nil {
		return err
	}
	d.audio.Rate, d.audio.Channels = m.rate, m.channels
	d.reader.Reset(m.audio)
	dec, err := mp3.NewDecoder(onlyReader{&d.reader})
	if err != nil {
		return err
	}
	const chunk = 4 * 1152
	d.chunk = slices.Grow(d.chunk[:0], chunk)[:chunk]
	for end := false; !end; {
		n, err := io.ReadFull(dec, d.chunk)
		if end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !end {
			return err
		}
		out, err := d.extend(n / 4 * m.channels)
		if err != nil {
			return err
		}
		step := 4 / m.channels
		for i := range out {
			out[i] = fromMP3(int16(binary.LittleEndian.Uint16(d.chunk[i*step:])))
		}
	}
	d.trimMP3(&m)
	return nil
}

// trimMP3 drops the delay of encoder and decoder and the padding. Without a number of frames in the tag nothing is dropped, as in mpg123.
func (d *Decoder) trimMP3(m *mp3File) {
	if m.tag.frames == 0 {
		return
	}
	if end := m.tag.frames*m.samples - m.tag.padding + decoderDelay; end < d.audio.Frames() {
		d.dropLast(d.audio.Frames() - max(end, 0))
	}
	d.dropFirst(m.tag.delay + decoderDelay)
}
