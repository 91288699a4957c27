package tiff

import (
	"encoding/binary"
	"fmt"
)

// The supported predictors.
const (
	predictNone  = 1
	predictLeft  = 2 // a sample is stored as the difference from the one to its left
	predictFloat = 3 // likewise for the bytes of floating point samples, the highest bytes of a row first
)

// readPredictor returns an error for unsupported predictors. They apply to LZW and Deflate only.
func (h *Header) readPredictor() error {
	h.predictor = predictNone
	if h.compression != compressLZW && h.compression != compressDeflate {
		return nil
	}
	h.predictor = h.order.number(tagPredictor, predictNone)
	switch {
	case h.predictor == predictNone:
	case h.predictor == predictLeft && h.bits >= 8:
	case h.predictor == predictFloat && h.float:
	default:
		return fmt.Errorf("unsupported TIFF predictor %d of samples of %d bits", h.predictor, h.bits)
	}
	return nil
}

// undo converts differences of a row of one plane to samples. tmp is as long as the row.
func (h *Header) undo(row, tmp []byte) {
	n := h.planeSamples()
	switch {
	case h.predictor == predictFloat:
		h.undoFloat(row, tmp, n)
	case h.predictor == predictNone:
	case h.bits == 8:
		for i := n; i < len(row); i++ {
			row[i] += row[i-n]
		}
	case h.bits == 16:
		order := h.order.order
		for i := 2 * n; i+2 <= len(row); i += 2 {
			order.PutUint16(row[i:], order.Uint16(row[i:])+order.Uint16(row[i-2*n:]))
		}
	default:
		order := h.order.order
		for i := 4 * n; i+4 <= len(row); i += 4 {
			order.PutUint32(row[i:], order.Uint32(row[i:])+order.Uint32(row[i-4*n:]))
		}
	}
}

// undoFloat is undo for floating point. The samples keep the byte order of the file.
func (h *Header) undoFloat(row, tmp []byte, n int) {
	copy(tmp, row)
	for i := n; i < len(tmp); i++ {
		tmp[i] += tmp[i-n]
	}
	count := len(row) / 4
	for i := range count {
		v := uint32(tmp[i])<<24 | uint32(tmp[count+i])<<16 | uint32(tmp[2*count+i])<<8 | uint32(tmp[3*count+i])
		h.order.order.PutUint32(row[4*i:], v)
	}
}

// littleEndian reports the byte order of the samples.
func (h *Header) littleEndian() bool { return h.order.order == binary.ByteOrder(binary.LittleEndian) }
