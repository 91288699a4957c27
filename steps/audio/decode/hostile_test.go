package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/audio/decode"
)

// TestTruncated cuts every file in the middle.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, file := range files(t) {
		if strings.HasSuffix(name, ".f32") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{len(file) / 2, len(file) * 9 / 10, len(file) / 10, 40, 20} {
				if _, err := decodeFile(file[:n], limits); err == nil {
					t.Errorf("%d of %d bytes are accepted", n, len(file))
				}
			}
		})
	}
}

// TestErrors names what is wrong with a file.
func TestErrors(t *testing.T) {
	t.Parallel()
	all := files(t)
	with := func(name string, change func(f []byte)) []byte {
		f := bytes.Clone(all[name])
		change(f)
		decode.FixOgg(f)
		return f
	}
	le := binary.LittleEndian
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"nothing", nil, "expected WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus, found no bytes"},
		{"text", []byte("hello"), `found 5 bytes that begin with "hello"`},
		{"MP4", []byte("\x00\x00\x00\x18ftypM4A "), "found an MP4 or M4A file"},
		{"base64", []byte("UklGRgAAAA"), "found base64 text of a WAV file"},
		{"bytes", []byte{1, 2, 3, 0xff}, "found 4 bytes that begin with 01 02 03 ff"},
		{"Ogg FLAC", with("mono.ogg", func(f []byte) { copy(f[28:], "\x7fFLAC") }), "found an Ogg file with another codec"},
		{"AAC", []byte("\xff\xf1\x50\x80"), "found an AAC file"},
		{"ADPCM", with("pcm_16.wav", func(f []byte) { f[20] = 2 }), "found a WAV that cannot be decoded: expected PCM, floating point, A-law or mu-law, found Microsoft ADPCM"},
		{"channels", with("pcm_16.wav", func(f []byte) { f[22] = 0 }), "4 bytes cannot be shared by 0 channels"},
		{"size", with("pcm_16.wav", func(f []byte) { f[32] = 12 }), "expected PCM of 8, 16, 24 or 32 bits, found 16 bits in 6 bytes"},
		{"rate", with("pcm_16.wav", func(f []byte) { le.PutUint32(f[24:], 1<<31) }), "expected a sampling rate of 1 to 768000 Hz, found 768001"},
		{"no rate", with("pcm_16.wav", func(f []byte) { le.PutUint32(f[24:], 0) }), "expected a sampling rate above 0, found 0"},
		{"checksum", with("stereo.flac", func(f []byte) { f[len(f)-1]++ }), "the checksum of a frame is wrong"},
		{"STREAMINFO", with("stereo.flac", func(f []byte) { f[4] = 4 }), "expected STREAMINFO as the first block of metadata"},
		{"frame", with("stereo.mp3", func(f []byte) { f[len(f)/2] = 0; copy(f[len(f)/2:], make([]byte, 900)) }), "is not one of 2 channels at 44100 Hz"},
		{"page", with("mono.ogg", func(f []byte) { i := bytes.LastIndex(f, []byte("OggS")); f[i+18]++ }), "page 2 is missing"},
		{"version", with("mono.opus", func(f []byte) { f[28+8] = 0x20 }), "expected version 0 or 1 of the header, found 32"},
		{"surround", with("mono.opus", func(f []byte) { f[28+9] = 6 }), "expected mono or stereo, found 6 channels of mapping family 0"},
		{"blocks", with("mono.ogg", func(f []byte) { f[28+28] = 0x1f }), "expected blocks of 64 to 8192 samples, found 32768 and 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := decodeFile(tt.file, limits); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestLimits stops at a number of samples, whatever the header says, and names what a header claims.
func TestLimits(t *testing.T) {
	t.Parallel()
	all := files(t)
	for name, file := range all {
		want, ok := all[name+".f32"]
		if !ok {
			continue
		}
		h, err := limits.Check(file)
		if err != nil {
			t.Fatal(name, err)
		}
		var d decode.Decoder
		if _, err := d.Decode(file, h, int64(len(want)/4-3)); !errors.Is(err, decode.ErrMore) {
			t.Errorf("%s: with one sample less allowed than the file has: %v", name, err)
		}
	}
	flac := bytes.Clone(all["stereo.flac"]) // claims 2^36 samples
	copy(flac[21:], "\xff\xff\xff\xff\xff")
	if _, err := limits.Check(flac); err == nil || !strings.Contains(err.Error(), "expected at most 4194304 samples (max_samples), found 68719476735 frames of ") {
		t.Errorf("a file that claims too much: %v", err)
	}
}

// TestStreamed reads WAV files whose writers did not know their length, and chunks around the samples.
func TestStreamed(t *testing.T) {
	t.Parallel()
	file := bytes.Clone(files(t)["mono.wav"])
	want, err := decodeFile(file, limits)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(file[40:], 0xffffffff)
	got, err := decodeFile(file, limits)
	if err != nil || len(got.Samples) != len(want.Samples) {
		t.Errorf("unknown length: %v", err)
	}
	file = append([]byte("RIFF....WAVELIST\x03\x00\x00\x00abc\x00"), files(t)["mono.wav"][12:]...)
	file = append(file, "LIST\x04\x00\x00\x00abcd"...)
	if got, err = decodeFile(file, limits); err != nil || len(got.Samples) != len(want.Samples) {
		t.Errorf("other chunks: %v", err)
	}
}

// TestBooks refuses codebooks of Vorbis with which its decoder would run forever or fill the memory.
func TestBooks(t *testing.T) {
	t.Parallel()
	file := files(t)["short.ogg"]
	setup := bytes.Index(file, []byte("\x05vorbis")) + 8 // the first codebook
	for name, change := range map[string]func(f []byte){
		"no dimensions": func(f []byte) { f[3], f[4] = 0, 0 },
		"no entries":    func(f []byte) { f[5], f[6], f[7] = 0, 0, 0 },
		"huge":          func(f []byte) { f[5], f[6], f[7] = 0xff, 0xff, 0xff },
		"no pattern":    func(f []byte) { f[0] = 'X' },
		"no codes":      func(f []byte) { copy(f[8:], make([]byte, 8)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := bytes.Clone(file)
			change(f[setup:])
			decode.FixOgg(f)
			if _, err := decodeFile(f, limits); err == nil || !strings.Contains(err.Error(), "the setup header: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}
