package textapi

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// responseWriter is where the response of an exchange goes: plain is used unless compressed is set.
type responseWriter struct {
	plain      transport.Writer
	compressed io.Writer
}

func (s *responseWriter) Write(b []byte) (int, error) {
	if s.compressed != nil {
		return s.compressed.Write(b)
	}
	return s.plain.Write(b)
}

// respond writes the response that encode appends to x.out, in parts where it is large. encode calls flush between parts; it cannot fail, since
// the status is sent by then.
func (x *exchange) respond(encode func(x *exchange)) error {
	h := x.w.Header()
	x.srv.Load.SetHeader(h, x.r.Header)
	x.mark(tracing.HTTPSendStart)
	defer x.mark(tracing.HTTPSendEnd)
	h["Content-Type"] = transport.JSONType
	x.out = x.out[:0]
	if c := transport.Negotiate(x.r.Header, h); c != transport.Identity {
		// An error is that of a client that has disconnected.
		_ = transport.Compress(x.w, c, func(z io.Writer) error {
			x.sink.compressed = z
			encode(x)
			_, err := z.Write(x.out)
			return err
		})
		return nil
	}
	x.sink.plain = x.srv.Writer(x.w)
	encode(x)
	x.in.Charge.Add(int64(len(x.out)))
	if !x.begun {
		h["Content-Length"] = []string{strconv.Itoa(len(x.out))}
		_, _ = x.w.Write(x.out) // as above
		return nil
	}
	_, _ = x.sink.Write(x.out)
	x.sink.plain.End()
	return nil
}

// flush writes what is encoded if it is much.
func (x *exchange) flush() {
	if len(x.out) < transport.SlowWrite {
		return
	}
	if !x.begun {
		x.begun = true
		x.in.Charge.Add(int64(cap(x.out)))
		if x.sink.compressed == nil {
			x.w.WriteHeader(http.StatusOK)
		}
	}
	_, _ = x.sink.Write(x.out) // the client may have disconnected
	x.out = x.out[:0]
}

// vector returns the row of a text in an output of FP32.
func (x *exchange) vector(r *result, name string) ([]float32, error) {
	t, first, end, err := x.output(r, name)
	if err != nil {
		return nil, err
	}
	if t.DType != tensor.FP32 {
		return nil, status.Reasonf(status.StepFailed, "model '%s' has sent output '%s' as %s, expected FP32", x.model.name, name, t.DType)
	}
	v := tensor.Slice[float32](t)[first:end]
	if !finite(v) {
		return nil, status.Reasonf(status.StepFailed, "model '%s' has sent NaN or an infinity in output '%s', which JSON has no form for", x.model.name, name)
	}
	return v, nil
}

// finite reports whether v has neither a NaN nor an infinity.
func finite(v []float32) bool {
	sum := float32(0)
	for _, f := range v {
		sum += f * 0 // NaN for both
	}
	return sum == 0
}

// appendVector appends numbers as a list or, in base64, as a string of their little-endian FP32.
//
// hot: no allocation once b has room.
func appendVector(b []byte, v []float32, inBase64 bool) []byte {
	if !inBase64 {
		return append(tensorjson.AppendFloats(append(b, '['), v), ']')
	}
	var part [768]byte // a multiple of 3, so that parts join without padding
	b = append(b, '"')
	for len(v) > 0 {
		n := min(len(v), len(part)/4)
		for i, f := range v[:n] {
			binary.LittleEndian.PutUint32(part[4*i:], math.Float32bits(f))
		}
		b = base64.StdEncoding.AppendEncode(b, part[:4*n])
		v = v[n:]
	}
	return append(b, '"')
}

// cut returns the first n elements of v, with length 1. It is valid until the next call.
func (x *exchange) cut(v []float32, n int) []float32 {
	x.floats = append(x.floats[:0], v[:n]...)
	return normalize(x.floats)
}

// normalize gives v the length 1.
func normalize(v []float32) []float32 {
	sum := 0.0
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	if sum > 0 {
		by := 1 / math.Sqrt(sum)
		for i := range v {
			v[i] = float32(float64(v[i]) * by)
		}
	}
	return v
}
