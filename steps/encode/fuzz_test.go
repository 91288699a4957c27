package encode_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// FuzzEncode encodes arbitrary samples without loss and decodes them again.
func FuzzEncode(f *testing.F) {
	f.Add(uint16(3), uint8(1), false, []byte("abcdefghijklmnopqrstuvwxyz"))
	f.Add(uint16(40), uint8(2), true, noise(40, 30, 4))
	f.Fuzz(func(t *testing.T, width uint16, kind uint8, webp bool, samples []byte) {
		name := []string{"gray", "rgb", "rgba"}[kind%3]
		ch := channels[name]
		w := max(int(width), 1)
		h := len(samples) / ch / w
		if h == 0 || w > 1000 {
			return
		}
		samples = samples[:w*h*ch]
		format := "png"
		if webp {
			format = "webp"
		}
		files, errs := encoded(t, map[string]string{"format": format, "color": name}, tensor.Uint8, tensor.Of(1, int64(h), int64(w), int64(ch)), samples)
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		check(t, files[0], samples, w, ch)
	})
}
