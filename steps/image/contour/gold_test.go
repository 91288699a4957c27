package contour_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/steps/image/contour"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is a mask of testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	W, H     int
	Mask     string
	Contours []struct {
		Points         []int32
		Rect           []float32 // centre, size, angle; none for contours without area
		Corners        [8]float32
		Mean, Distance float64
		Grown          []int32 // nil where the result has several polygons
	}
}

func readGold(t *testing.T) (list []gold) {
	t.Helper()
	steptest.ReadGold(t, "gold.json.gz", &list)
	return list
}

func flat(points []contour.Point) (out []int32) {
	for _, p := range points {
		out = append(out, p.X, p.Y)
	}
	return out
}

func corners(c [4]contour.Corner) (out [8]float32) {
	for i, p := range c {
		out[2*i], out[2*i+1] = p.X, p.Y
	}
	return out
}

// TestGold compares contours, rectangles, means and offsets with those of OpenCV and pyclipper: every bit agrees.
func TestGold(t *testing.T) {
	t.Parallel()
	var c contour.Contours
	for i, g := range readGold(t) {
		c.Trace(g.W, g.H, func(y int, row []byte) {
			for x := range row {
				row[x] = g.Mask[y*g.W+x] - '0'
			}
		})
		if c.Len() != len(g.Contours) {
			t.Fatalf("mask %d: %d contours, expected %d", i, c.Len(), len(g.Contours))
		}
		for j := range g.Contours {
			checkContour(t, i, &g, j, c.At(j))
		}
	}
}

func checkContour(t *testing.T, i int, g *gold, j int, points []contour.Point) {
	t.Helper()
	want := &g.Contours[j]
	if !slices.Equal(flat(points), want.Points) {
		t.Fatalf("mask %d, contour %d: %v, expected %v", i, j, points, want.Points)
	}
	var hull contour.Hull
	r, ok := contour.MinRect(hull.Of(points))
	if !ok || min(r.Width, r.Height) == 0 {
		if want.Rect != nil {
			t.Errorf("mask %d, contour %d: no rectangle, expected %v", i, j, want.Rect)
		}
		return
	}
	if got := []float32{r.X, r.Y, r.Width, r.Height, r.Angle}; !slices.Equal(got, want.Rect) {
		t.Errorf("mask %d, contour %d: rectangle %v, expected %v", i, j, got, want.Rect)
	}
	box := r.Corners()
	if got := corners(box); got != want.Corners {
		t.Errorf("mask %d, contour %d: corners %v, expected %v", i, j, got, want.Corners)
	}
	var polygon []contour.Point
	for _, c := range box {
		polygon = append(polygon, contour.Point{X: int32(c.X), Y: int32(c.Y)})
	}
	values := make([]float32, g.W*g.H)
	for k := range values {
		values[k] = float32((7*(k%g.W) + 3*(k/g.W)) % 11)
	}
	var f contour.Filler
	if got := f.Mean(values, g.W, g.W, g.H, polygon); got != want.Mean {
		t.Errorf("mask %d, contour %d: mean %v of %v, expected %v", i, j, got, polygon, want.Mean)
	}
	var o contour.Offset
	if got := flat(o.Of(&box, want.Distance)); want.Grown != nil && !slices.Equal(got, want.Grown) {
		t.Errorf("mask %d, contour %d: offset %v, expected %v", i, j, got, want.Grown)
	}
}
