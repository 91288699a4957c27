package resize_test

import (
	"fmt"

	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// printer is a Sink that prints the rows.
type printer struct{}

func (printer) Put(i int, row []byte) { fmt.Printf("row %d: %d\n", i, row) }

// A grey image of 4 x 2 pixels becomes 2 x 1: each output is the mean of a box.
func ExampleResizer_Run() {
	src := raster.Packed{Pix: []byte{0, 10, 100, 200, 20, 30, 100, 200}, W: 4, H: 2, Channels: 1}
	var r resize.Resizer
	r.Src.Set(&src, raster.Gray)
	r.Run(&resize.Job{
		Filter: resize.Area, Part: resize.Rect{W: 4, H: 2}, To: printer{},
		X: resize.Span{In: 4, Out: 2, N: 2}, Y: resize.Span{In: 2, Out: 1, N: 1},
	})
	// Output: row 0: [15 150]
}
