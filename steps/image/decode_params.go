package image

import (
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/decode"
)

// decodingParams declares the parameters of decoding.
func decodingParams() []steps.Param {
	return []steps.Param{
		{Key: "max_pixels", Doc: "Largest image accepted, width times height, checked before it is decoded. " +
			"A pixel takes up to 11 bytes while its image is decoded, 15 in a progressive JPEG. " +
			"Images are decoded at the same time as long as they have no more pixels together, or 4194304 per core if that is more.", Default: "67108864"},
		{Key: "max_bytes", Doc: "Largest file accepted.", Default: "67108864"},
		{Key: "orientation", Doc: "Whether an image is turned as its EXIF orientation says, or left as it is stored.", Default: "exif", Values: []string{"exif", "ignore"}},
		{Key: "alpha", Doc: "Treatment of transparency: drop it and keep the stored colours, or composite the image over the background.", Default: "drop", Values: []string{"drop", "composite"}},
		{Key: "background", Doc: "Colour under transparent pixels with alpha composite: red, green and blue from 0 to 255.", Default: "255,255,255"},
		{
			Key: "jpeg_decoder", Doc: "Has no effect: every value selects the built-in JPEG decoder. Accepted so that configurations written for older versions still load.",
			Default: "auto", Values: []string{"auto", "turbojpeg", "go"},
		},
		{Key: "jpeg_scale", Doc: "With auto, a JPEG file is decoded at 1/2, 1/4 or 1/8 of its size where that is not smaller than the output. " +
			"This is several times faster and gives slightly different pixels (those of Pillow's draft mode).", Default: "full", Values: []string{"full", "auto"}},
	}
}

// parseDecoding reads the parameters of decodingParams.
func parseDecoding(s *steps.Settings) (decode.Options, error) {
	pixels, err := s.Int("max_pixels", 1)
	if err != nil {
		return decode.Options{}, err
	}
	size, err := s.Int("max_bytes", 1)
	if err != nil {
		return decode.Options{}, err
	}
	d := decode.Options{
		MaxBytes: int64(size), MaxPixels: int64(pixels),
		Turn: s.Params["orientation"] == "exif", Blend: s.Params["alpha"] == "composite", Reduce: s.Params["jpeg_scale"] == "auto",
	}
	d.Background, err = parseColor(s, "background")
	return d, err
}

// parseColor reads red, green and blue, from 0 to 255.
func parseColor(s *steps.Settings, key string) (c [3]byte, err error) {
	parts := strings.Split(s.Params[key], ",")
	if len(parts) != len(c) {
		return c, wrong(s, key, "three numbers from 0 to 255, separated by commas")
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(strings.TrimSpace(p), 10, 8)
		if err != nil {
			return c, wrong(s, key, "three numbers from 0 to 255, separated by commas")
		}
		c[i] = byte(v)
	}
	return c, nil
}
