package load_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/proto/inference"
)

// FuzzResponse checks that any bytes from a server are decoded to outputs or an error, without a panic.
func FuzzResponse(f *testing.F) {
	const head = "HTTP/1.1 200 OK\r\n"
	f.Add([]byte(head + "Content-Length: 71\r\n\r\n" + `{"outputs":[{"name":"X","datatype":"FP32","shape":[2],"data":[[1],[2]]}]}`))
	f.Add([]byte(head + "Inference-Header-Content-Length: 90\r\nContent-Length: 94\r\n\r\n" +
		`{"outputs":[{"name":"X","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}` + "\x00\x00\x80\x3f"))
	f.Add([]byte(head + "Transfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nwhy"))
	message, err := proto.Marshal(&inference.ModelInferResponse{
		Outputs:           []*inference.ModelInferResponse_InferOutputTensor{{Name: "X", Datatype: "BYTES", Shape: []int64{1}}},
		RawOutputContents: [][]byte{{1, 0, 0, 0, 'a'}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func([]byte) ([]load.Output, error){load.ReadResponse, load.ReadProto} {
			outputs, err := read(text)
			if err != nil && len(outputs) > 0 {
				t.Errorf("%d outputs beside the error %v", len(outputs), err)
			}
		}
	})
}
