package decode_test

import (
	"fmt"

	"github.com/tutti-server/tutti/steps/image/decode"
)

// A file is checked before it is decoded; the rows are then read from the image.
func ExampleDecoder_Decode() {
	// A BMP with the oldest header: 2 x 1 pixels of 24 bits, blue and red.
	file := []byte("BM\x22\x00\x00\x00\x00\x00\x00\x00\x1a\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x01\x00\x01\x00\x18\x00\xff\x00\x00\x00\x00\xff\x00\x00")
	o := decode.Options{MaxBytes: 1 << 20, MaxPixels: 1 << 20}
	h, err := o.Check(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	var d decode.Decoder
	img, err := d.Decode(&o, file, h, 0, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	w, height := img.Size()
	row := make([]byte, 3*w)
	img.Row(row, 0)
	fmt.Printf("%d x %d: %d\n", w, height, row)
	// Output: 2 x 1: [0 0 255 255 0 0]
}

// A file beyond a limit is refused by its header.
func ExampleOptions_Check() {
	o := decode.Options{MaxBytes: 1 << 20, MaxPixels: 1000}
	_, err := o.Check([]byte("GIF89a\x40\x01\xf0\x00\x00\x00\x00"))
	fmt.Println(err)
	_, err = o.Check([]byte("%PDF-1.7"))
	fmt.Println(err)
	// Output:
	// expected at most 1000 pixels (max_pixels), found 320 x 240 = 76800
	// expected JPEG, PNG, GIF, WebP, BMP or TIFF, found PDF
}
