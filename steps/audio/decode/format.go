package decode

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// format is a file format.
type format uint8

const (
	formatUnknown format = iota
	formatWAV
	formatFLAC
	formatMP3
	formatVorbis
	formatOpus
)

// codec reads files of one format.
type codec struct {
	name   string
	header func(data []byte) (Header, error)
	decode func(d *Decoder, data []byte) error
}

// formats is indexed by format.
var formats = [...]codec{
	formatUnknown: {name: "file of unknown format"},
	formatWAV:     {"WAV", wavFileHeader, (*Decoder).decodeWAV},
	formatFLAC:    {"FLAC", flacHeader, (*Decoder).decodeFLAC},
	formatMP3:     {"MP3", mp3Header, (*Decoder).decodeMP3},
	formatVorbis:  {"Ogg Vorbis", vorbisHeader, (*Decoder).decodeVorbis},
	formatOpus:    {"Ogg Opus", opusHeader, (*Decoder).decodeOpus},
}

// String returns the name that errors use.
func (f format) String() string { return formats[f].name }

const expectedFormats = "expected WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus"

// refuse returns the error of a file of a known format.
func (f format) refuse(err error) error {
	return fmt.Errorf("%s, found %s that cannot be decoded: %w", expectedFormats, f.withArticle(), err)
}

func (f format) withArticle() string {
	if f == formatMP3 || f == formatVorbis || f == formatOpus {
		return "an " + f.String()
	}
	return "a " + f.String()
}

var errTruncated = errors.New("truncated")

// sniff returns the format by the first bytes.
func sniff(data []byte) format {
	switch {
	case len(data) >= 12 && string(data[8:12]) == "WAVE" && (string(data[:4]) == "RIFF" || string(data[:4]) == "RF64" || string(data[:4]) == "BW64"):
		return formatWAV
	case bytes.HasPrefix(data, []byte("fLaC")):
		return formatFLAC
	case bytes.HasPrefix(data, []byte("ID3")):
		if n := id3Size(data); n < len(data) && bytes.HasPrefix(data[n:], []byte("fLaC")) {
			return formatFLAC
		}
		return formatMP3
	case isMP3Frame(data):
		return formatMP3
	case bytes.HasPrefix(data, []byte("OggS")):
		return sniffOgg(data)
	}
	return formatUnknown
}

// isMP3Frame reports whether data begins with the header of a frame of MPEG audio, layer III.
func isMP3Frame(data []byte) bool {
	return len(data) >= 4 && data[0] == 0xff && data[1]&0xe0 == 0xe0 && data[1]>>1&3 == 1 && data[1]>>3&3 != 1 && data[2]>>2&3 != 3
}

// sniffOgg returns the format of the first stream of an Ogg file.
func sniffOgg(data []byte) format {
	switch first := firstPacket(data); {
	case bytes.HasPrefix(first, []byte(vorbisMagic)):
		return formatVorbis
	case bytes.HasPrefix(first, []byte(opusMagic)):
		return formatOpus
	}
	return formatUnknown
}

// foreign lists formats that clients send by mistake, so that the error can name them.
var foreign = []struct {
	at          int
	magic, name string
}{
	{4, "ftyp", "an MP4 or M4A file"},
	{0, "FORM", "an AIFF file"},
	{0, "\x1aE\xdf\xa3", "a WebM or Matroska file"},
	{0, "RIFX", "a WAV file with numbers in big-endian order"},
	{0, "riff\x2e\x91\xcf\x11", "a Wave64 file"},
	{0, "caff", "a Core Audio file"},
	{0, "#!AMR", "an AMR file"},
	{0, ".snd", "an AU file"},
	{0, "\x30\x26\xb2\x75", "a WMA file"},
	{0, "MAC ", "an APE file"},
	{0, "wvpk", "a WavPack file"},
	{0, "\xff\xf1", "an AAC file"},
	{0, "\xff\xf9", "an AAC file"},
	{0, "OggS", "an Ogg file with another codec"},
	{0, "\xff\xfd", "an MPEG audio file of layer II"},
	{0, "UklGR", "base64 text of a WAV file"},
	{0, "ZkxhQ", "base64 text of a FLAC file"},
	{0, "T2dnU", "base64 text of an Ogg file"},
	{0, "SUQz", "base64 text of an MP3 file"},
	{0, "//s", "base64 text of an MP3 file"},
	{0, "{", "JSON"},
	{0, "<", "HTML or XML"},
}

// describe names what data is, for errors.
func describe(data []byte) string {
	if len(data) == 0 {
		return "no bytes"
	}
	for _, f := range foreign {
		if len(data) >= f.at && bytes.HasPrefix(data[f.at:], []byte(f.magic)) {
			return f.name
		}
	}
	if head := data[:min(len(data), 16)]; !utf8.Valid(head) || bytes.IndexByte(head, 0) >= 0 {
		return fmt.Sprintf("%d bytes that begin with % x", len(data), head[:min(len(head), 8)])
	}
	return fmt.Sprintf("%d bytes that begin with %q", len(data), data[:min(len(data), 16)])
}
