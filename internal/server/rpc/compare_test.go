package rpc_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// conversation is what a client sends on stream 1.
type conversation struct {
	name   string
	method string
	fields [][2]string // in place of those of method
	pairs  []string
	body   []byte
	open   bool // the client does not end its messages
}

func conversations(t *testing.T) []conversation {
	t.Helper()
	small := message(t, payload(3))
	packed := func(flag byte, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(b))), b...)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write(small[5:])
	_ = w.Close()
	unary := service + "UnaryCall"
	return []conversation{
		{name: "unary", method: unary, body: small},
		{name: "unary without output", method: service + "EmptyCall", body: message(t, &testpb.Empty{})},
		{name: "three frames", method: unary, body: message(t, &testpb.SimpleRequest{ResponseSize: 40000})},
		{name: "message is not ended", method: unary, body: small, open: true, pairs: []string{"x-status", `"ABORTED"`, "grpc-encoding", "brotli"}},
		{name: "no message", method: unary},
		{name: "two messages", method: unary, body: append(bytes.Clone(small), small...)},
		{name: "message is cut", method: unary, body: small[:len(small)-1]},
		{name: "prefix is cut", method: unary, body: small[:3]},
		{name: "no protobuf", method: unary, body: packed(0, []byte{0xff})},
		{name: "too large", method: unary, body: binary.BigEndian.AppendUint32([]byte{0}, maxMessage+1)},
		{name: "unknown service", method: "/a.B/C", body: small},
		{name: "unknown service, not ended", method: "/a.B/C", open: true},
		{name: "unknown method", method: service + "Other", body: small},
		{name: "no service", method: "/C", body: small},
		{name: "no slash", method: "C", body: small},
		{name: "empty path", method: "", body: small},
		{name: "status", method: unary, body: small, pairs: []string{"x-status", `"ABORTED"`, "x-text", "a b"}},
		{name: "status of another character", method: unary, body: small, pairs: []string{"x-status", `"NOT_FOUND"`, "x-text", "50% \x7f é 世"}},
		{name: "status with details", method: unary, body: small, pairs: []string{"x-status", `"UNAVAILABLE"`, "x-text", "t", "x-details", "1"}},
		{name: "error of Go", method: unary, body: small, pairs: []string{"x-plain-error", "no status"}},
		{name: "header and trailer", method: unary, body: small, pairs: []string{"x-header", "h", "x-trailer-bin", "AAEC"}},
		{name: "header and trailer with an error", method: unary, body: small, pairs: []string{"x-header", "h", "x-trailer-bin", "AAEC", "x-status", `"ABORTED"`}},
		{name: "header is set", method: service + "EmptyCall", body: packed(0, nil), pairs: []string{"x-header", "h", "x-trailer-bin", "AAEC"}},
		{name: "header is set, with an error", method: service + "EmptyCall", body: packed(0, nil), pairs: []string{"x-header", "h", "x-status", `"ABORTED"`}},
		{name: "binary with padding", method: unary, body: small, pairs: []string{"x-trailer-bin", "AAE="}},
		{name: "binary is wrong", method: unary, body: small, pairs: []string{"x-trailer-bin", "%%"}},
		{name: "metadata twice", method: unary, body: small, pairs: []string{"x-status", `"ABORTED"`, "x-text", "a", "x-text", "b"}},
		{name: "content type with subtype", method: unary, body: small, pairs: []string{"-content-type", "application/grpc+proto"}},
		{name: "content type with parameter", method: unary, body: small, pairs: []string{"-content-type", "application/grpc;a=b"}},
		{name: "content type of HTTP", method: unary, body: small, pairs: []string{"-content-type", "application/json"}},
		{name: "content type that begins so", method: unary, body: small, pairs: []string{"-content-type", "application/grpcx"}},
		{name: "no content type", method: unary, body: small, pairs: []string{"-content-type", ""}},
		{name: "no content type, not ended", method: unary, open: true, pairs: []string{"-content-type", ""}},
		{name: "no te", method: unary, body: small, pairs: []string{"-te", ""}},
		{name: "no authority", method: unary, body: small, fields: [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", unary}, {"content-type", "application/grpc"}}},
		{name: "two authorities", method: unary, body: small, fields: append([][2]string{{":authority", "y"}}, fields(unary)...)},
		{name: "authority and host", method: unary, body: small, pairs: []string{"host", "h"}},
		{name: "host", method: unary, body: small, fields: [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", unary}, {"content-type", "application/grpc"}, {"host", "h"}}},
		{name: "two hosts", method: unary, body: small, pairs: []string{"host", "a", "host", "b"}},
		{name: "connection", method: unary, body: small, pairs: []string{"connection", "close"}},
		{name: "method of HTTP", method: unary, body: small, fields: [][2]string{{":method", "PUT"}, {":scheme", "http"}, {":path", unary}, {":authority", "x"}, {"content-type", "application/grpc"}}},
		{name: "unknown pseudo field", method: unary, body: small, fields: [][2]string{{":method", "POST"}, {":path", unary}, {":other", "x"}, {"content-type", "application/grpc"}}},
		{name: "pseudo field last", method: unary, body: small, fields: [][2]string{{":method", "POST"}, {"content-type", "application/grpc"}, {":path", unary}}},
		{name: "upper case", method: unary, body: small, pairs: []string{"X-Upper", "1"}},
		{name: "control character", method: unary, body: small, pairs: []string{"x-a", "a\x00b"}},
		{name: "timeout has passed", method: unary, body: small, pairs: []string{"grpc-timeout", "0n"}},
		{name: "long timeout", method: unary, body: small, pairs: []string{"grpc-timeout", "99999999H"}},
		{name: "timeout without unit", method: unary, body: small, pairs: []string{"grpc-timeout", "12"}},
		{name: "timeout too short", method: unary, body: small, pairs: []string{"grpc-timeout", "S"}},
		{name: "timeout too long", method: unary, body: small, pairs: []string{"grpc-timeout", "123456789S"}},
		{name: "timeout is no number", method: unary, body: small, pairs: []string{"grpc-timeout", "1xS"}},
		{name: "compressed", method: unary, body: packed(1, z.Bytes()), pairs: []string{"grpc-encoding", "gzip"}},
		{name: "plain with an encoding", method: unary, body: small, pairs: []string{"grpc-encoding", "gzip"}},
		{name: "compressed, broken", method: unary, body: packed(1, []byte("none")), pairs: []string{"grpc-encoding", "gzip"}},
		{name: "compressed, cut", method: unary, body: packed(1, z.Bytes()[:z.Len()-9]), pairs: []string{"grpc-encoding", "gzip"}},
		{name: "compressed without encoding", method: unary, body: packed(1, z.Bytes())},
		{name: "compressed, identity", method: unary, body: packed(1, z.Bytes()), pairs: []string{"grpc-encoding", "identity"}},
		{name: "unknown encoding", method: unary, body: small, pairs: []string{"grpc-encoding", "brotli"}},
		{name: "flag", method: unary, body: packed(7, small[5:])},
		{name: "headers too large", method: unary, body: small, pairs: []string{"x-a", strings.Repeat("a", maxHeaders)}},
		{name: "stream without messages", method: service + "FullDuplexCall"},
		{name: "stream", method: service + "FullDuplexCall", body: append(bytes.Clone(small), small...)},
		{name: "stream with an error", method: service + "FullDuplexCall", body: small, pairs: []string{"x-status", `"ABORTED"`, "x-trailer-bin", "AA=="}},
		{name: "stream is cut", method: service + "FullDuplexCall", body: small[:len(small)-1]},
		{name: "stream of a flag", method: service + "FullDuplexCall", body: packed(7, small[5:])},
		{name: "stream too large", method: service + "FullDuplexCall", open: true, body: binary.BigEndian.AppendUint32([]byte{0}, maxMessage+1)},
	}
}

// TestAsGRPC compares the responses of both servers to the same frames.
func TestAsGRPC(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{}
	for name, s := range servers() {
		testpb.RegisterTestServiceServer(s, newEcho())
		addrs[name] = serve(t, s)
	}
	for _, c := range conversations(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := map[string][]string{}
			for name, addr := range addrs {
				got[name] = c.talk(t, addr)
			}
			if len(got["grpc-go"]) == 0 {
				t.Fatal("no response")
			}
			if d := cmp.Diff(got["grpc-go"], got["ours"]); d != "" {
				t.Errorf("grpc-go -, ours +:\n%s", d)
			}
		})
	}
}

// talk sends the conversation as a client would, and returns what comes of it.
func (c *conversation) talk(t *testing.T, addr string) []string {
	t.Helper()
	r := dialRaw(t, addr).connect()
	list := c.fields
	if list == nil {
		list = fields(c.method, c.pairs...)
	}
	r.headers(1, len(c.body) == 0 && !c.open, list)
	for body := c.body; len(body) > 0; {
		n := min(len(body), 16<<10)
		r.must(r.fr.WriteData(1, n == len(body) && !c.open, body[:n]))
		body = body[n:]
	}
	all := r.outcome(1)
	// The connection goes on unless it is closed.
	if last := all[len(all)-1]; last != "closed" {
		r.headers(3, false, fields(service+"EmptyCall"))
		r.must(r.fr.WriteData(3, true, make([]byte, 5)))
		all = append(all, fmt.Sprint("next: ", r.outcome(3)))
	}
	return all
}
