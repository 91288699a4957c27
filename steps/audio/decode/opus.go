package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/pion/opus"
)

// opusMagic begins the header packet.
const opusMagic = "OpusHead"

// opusClock is the rate in Hz of the decoder, of all positions and of preSkip. Files also say which rate was encoded; RFC 7845 recommends
// to decode at this one all the same.
const opusClock = 48000

// opusHead is the header packet (RFC 7845).
type opusHead struct {
	channels int
	preSkip  int
	gain     float32
}

// readOpusHead parses the header packet.
func readOpusHead(packet []byte) (h opusHead, err error) {
	le := binary.LittleEndian
	if len(packet) < 19 || string(packet[:8]) != opusMagic {
		return h, errors.New("the header is truncated")
	}
	if v := packet[8]; v>>4 != 0 {
		return h, fmt.Errorf("expected version 0 or 1 of the header, found %d", v)
	}
	h.channels, h.preSkip = int(packet[9]), int(le.Uint16(packet[10:]))
	h.gain = float32(math.Pow(10, float64(int16(le.Uint16(packet[16:])))/(20*256)))
	family := packet[18]
	stereo := family == 1 && len(packet) >= 21+h.channels && packet[19] == 1 && int(packet[20]) == h.channels-1
	if h.channels < 1 || h.channels > 2 || family != 0 && !stereo {
		return h, fmt.Errorf("expected mono or stereo, found %d channels of mapping family %d", h.channels, family)
	}
	return h, nil
}

func opusHeader(data []byte) (Header, error) {
	h, err := readOpusHead(firstPacket(data))
	return Header{rate: opusClock, channels: h.channels, frames: unknown, likely: lastPosition(data)}, err
}

// longestPacket is the frames of the longest packet at opusClock: 120 ms.
const longestPacket = opusClock * 120 / 1000

func (d *Decoder) decodeOpus(data []byte) error {
	d.ogg = oggReader{data: data, packet: d.ogg.packet[:0]}
	first, err := d.ogg.next()
	if err != nil {
		return err
	}
	h, err := readOpusHead(first)
	if err != nil {
		return err
	}
	if _, err := d.ogg.next(); err != nil { // the comments
		return fmt.Errorf("the second header: %w", err)
	}
	dec, err := opus.NewDecoderWithOutput(opusClock, h.channels)
	if err != nil {
		return err
	}
	d.audio.Rate, d.audio.Channels = opusClock, h.channels
	if cap(d.packet) < 2*longestPacket {
		d.packet = make([]float32, 2*longestPacket)
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
		if err := d.addOpus(&dec, packet, h.gain); err != nil {
			return err
		}
		place.page(&d.ogg, d.audio.Frames())
	}
	if place.excess > 0 {
		d.dropLast(place.excess)
	}
	d.dropFirst(h.preSkip)
	return nil
}

// addOpus decodes a packet and adds its samples, times gain, to the output.
func (d *Decoder) addOpus(dec *opus.Decoder, packet []byte, gain float32) error {
	if len(packet) == 0 {
		return errors.New("a packet is empty")
	}
	ch := d.audio.Channels
	n, err := dec.DecodeToFloat32(packet, d.packet[:ch*longestPacket])
	if err != nil {
		return err
	}
	out, err := d.extend(n * ch)
	for i := range out {
		out[i] = d.packet[i] * gain
	}
	return err
}

// placement compares positions of pages with the number of decoded frames: a stream may begin before position 0, or at a later one,
// and its last page says how many frames of the last packets count.
type placement struct {
	known bool
	start int // position of the first decoded frame; negative if frames before position 0 are to be dropped
	// excess is the number of frames behind the end of the stream.
	excess int
}

// page reads the position of the current page of r, if its last packet has just been decoded. frames have been decoded so far.
func (p *placement) page(r *oggReader, frames int) {
	if !r.ends || r.page.granule == noGranule {
		return
	}
	// A position far from the number of frames cannot be right, but is not an error of the samples.
	at := int(min(max(r.page.granule, 0), math.MaxInt32*64))
	if !p.known {
		p.known = true
		if !r.last() || at > frames {
			p.start = at - frames
		}
	}
	if r.last() {
		p.excess = max(p.start+frames-at, 0)
	}
}
