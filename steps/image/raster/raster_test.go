package raster_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// Rows converts any Image to a colour space.
func ExampleRows() {
	img := raster.Packed{Pix: []byte{255, 0, 0, 0, 0, 255}, W: 2, H: 1, Channels: 3}
	var r raster.Rows
	r.Set(&img, raster.Gray)
	row := make([]byte, r.W*r.Channels())
	r.Row(row, 0)
	fmt.Printf("%d\n", row)
	// Output: [76 29]
}

// TestTurn turns a grey image of 3 x 2 pixels, 1 2 3 above 4 5 6, by each EXIF orientation.
func TestTurn(t *testing.T) {
	t.Parallel()
	src := raster.Packed{Pix: []byte{1, 2, 3, 4, 5, 6}, W: 3, H: 2, Channels: 1}
	for orientation, want := range map[uint8][]byte{
		2: {3, 2, 1, 6, 5, 4},
		3: {6, 5, 4, 3, 2, 1},
		4: {4, 5, 6, 1, 2, 3},
		5: {1, 4, 2, 5, 3, 6},
		6: {4, 1, 5, 2, 6, 3},
		7: {6, 3, 5, 2, 4, 1},
		8: {3, 6, 2, 5, 1, 4},
	} {
		var p raster.Packed
		var line []byte
		p.Turn(&src, orientation, &line)
		if diff := cmp.Diff(want, p.Pix); diff != "" {
			t.Errorf("orientation %d: %s", orientation, diff)
		}
		if w, _ := p.Size(); orientation >= 5 && w != 2 || orientation < 5 && w != 3 {
			t.Errorf("orientation %d: width %d", orientation, w)
		}
	}
}

// TestBlended lays a half transparent pixel over a background, and an opaque one.
func TestBlended(t *testing.T) {
	t.Parallel()
	var p raster.Packed
	p.Reset(2, 1, false)
	p.AddAlpha()
	copy(p.Pix, []byte{200, 100, 0, 200, 100, 0})
	copy(p.Alpha, []byte{128, 255})
	row := make([]byte, 6)
	(&raster.Blended{Src: &p, Background: [3]byte{0, 0, 255}}).Row(row, 0)
	if diff := cmp.Diff([]byte{100, 50, 127, 200, 100, 0}, row); diff != "" {
		t.Error(diff)
	}
}
