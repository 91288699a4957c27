package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

const chunkedHead = "POST " + inferPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"

// spaces is a body of n chunks of one byte each that begins like JSON.
func spaces(n int) string {
	return "1\r\n{\r\n" + strings.Repeat("1\r\n \r\n", n-1) + "0\r\n\r\n"
}

// TestChunkCount tests both sides of the limit.
//
// shows: limits
func TestChunkCount(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	const rejected = `{"error":"Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks."}`
	tests := []struct {
		name, path, header, body string
		code                     int
		want                     string
	}{
		{"as many as may be", inferPath, "", spaces(65536), 500, `{"error":"failed to parse the request JSON buffer: Missing a name for object member. at 65536"}`},
		{"one more", inferPath, "", spaces(65537), 400, rejected},
		{"larger ones", inferPath, "", "40\r\n{" + strings.Repeat(" ", 63) + "\r\n" + strings.Repeat("40\r\n"+strings.Repeat(" ", 64)+"\r\n", 65536) + "0\r\n\r\n", 400, rejected},
		{"a model that is not there", "/v2/models/nope/infer", "", spaces(65537), 400, `{"error":"Request for unknown model: 'nope' is not found"}`},
		{"a tensor that the model does not take", "/v2/models/two/infer", lengthHeader + ": 0\r\n", spaces(65537), 400, rejected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, address)
			go func() {
				_, _ = io.WriteString(c, strings.Replace(chunkedHead, inferPath, tt.path, 1)+tt.header+"\r\n"+tt.body)
			}()
			code, body, closing := c.response()
			if code != tt.code || tt.want != "" && body != tt.want {
				t.Errorf("got status %d, %s, want %d, %s", code, body, tt.code, tt.want)
			}
			if closing != (body == rejected) {
				t.Errorf("the connection is closed: %v", closing)
			}
		})
	}
}

// TestListLengths sends lists of as many entries as they may have, and of one more: each entry costs the server more than its bytes.
func TestListLengths(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	h := httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil), MaxInput: 64 << 20})
	list := func(before string, n int, entry, after string) string {
		return before + strings.Repeat(entry+",", n-1) + entry + after
	}
	const input = `"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]`
	for what, of := range map[string]func(n int) string{
		"inputs": func(n int) string {
			return list(`{"inputs":[`, n, `{"name":"a","datatype":"FP32","shape":[1],"data":[1]}`, `]}`)
		},
		"outputs": func(n int) string { return list(`{`+input+`,"outputs":[`, n, `{"name":"a"}`, `]}`) },
		"dimensions": func(n int) string {
			return list(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[`, n, `1`, `],"data":[1]}]}`)
		},
		"parameters": func(n int) string { return list(`{`+input+`,"parameters":{`, n, `"a":1`, `}}`) },
	} {
		refused := "request has more than 65536 " + what
		for n, want := range map[int]bool{65536: false, 65537: true} {
			w := post(t, h, "echo", of(n), "")
			if got := strings.Contains(w.Body.String(), refused); got != want || want && w.Code != http.StatusBadRequest {
				t.Errorf("%d %s: %d, %.200s", n, what, w.Code, w.Body)
			}
		}
	}
}

// TestChunked sends bodies in chunks of every size, with and without Expect: 100-continue.
//
// shows: http.chunked
func TestChunked(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	for _, size := range []int{1, 2, 3, 7, 30, 66, 67, 100} {
		for _, expect := range []bool{false, true} {
			t.Run(fmt.Sprint(size, expect), func(t *testing.T) {
				t.Parallel()
				var body strings.Builder
				for rest := goodInput; rest != ""; {
					part := rest[:min(size, len(rest))]
					fmt.Fprintf(&body, "%x\r\n%s\r\n", len(part), part)
					rest = rest[len(part):]
				}
				body.WriteString("0\r\n\r\n")
				c := dial(t, address)
				for range 2 {
					if expect {
						c.send(chunkedHead + "Expect: 100-continue\r\n\r\n")
						line, err := c.r.ReadString('\n')
						if _, end := c.r.ReadString('\n'); err != nil || end != nil || line != "HTTP/1.1 100 Continue\r\n" {
							t.Fatalf("%q, %v", line, err)
						}
						c.send(body.String())
					} else {
						c.send(chunkedHead + "\r\n" + body.String())
					}
					if code, got, closing := c.response(); code != http.StatusOK || got != goodAnswer || closing {
						t.Errorf("status %d, %s", code, got)
					}
				}
			})
		}
	}
}

// TestConnectionAfterRejection sends a good request behind each rejected one that leaves a part of its body, on one connection.
//
// shows: errors
func TestConnectionAfterRejection(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	address, _ := listen(t, func(set *httpapi.Settings) { set.MaxInput = limit })
	big := strings.Repeat(" ", 900<<10)
	post := func(path, header, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	chunked := func(path, header, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "Transfer-Encoding: chunked\r\n\r\n" +
			strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"
	}
	tests := []struct {
		name, request string
		code          int
	}{
		{"no such path", post("/v3", "", big), 404},
		{"wrong method", strings.Replace(post("/v2", "", big), "POST", "PUT", 1), 405},
		{"unknown model", post("/v2/models/nope/infer", "", big), 400},
		{"no JSON", post(inferPath, "", "{"+big), 500},
		{"encoding", post(inferPath, "Content-Encoding: zip\r\n", big), 501},
		{"not compressed", post(inferPath, "Content-Encoding: gzip\r\n", big), 400},
		{"header length", post(inferPath, lengthHeader+": 99999999999\r\n", big), 400},
		{"JSON and too much", post(inferPath, lengthHeader+": 67\r\n", goodInput+big), 400},
		{"above the limit", post(inferPath, "", big+big), 400},
		{"above the limit in a chunk", chunked(inferPath, "", big+big), 400},
		{"unknown model in a chunk", chunked("/v2/models/nope/infer", "", big), 400},
		{"encoding of generate", post("/v2/models/echo/generate", "Content-Encoding: gzip\r\n", big), 400},
		{"shared memory off", post("/v2/systemsharedmemory/region/r/register", "", "{"+big), 501},
		{"error of the model", post("/v2/models/fail/infer", "", goodInput), 500},
		{"options of all", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, address)
			go func() { _, _ = io.WriteString(c, tt.request+post(inferPath, "", goodInput)) }()
			if code, body, closing := c.response(); code != tt.code || closing || !strings.HasPrefix(body, `{"error":"`) {
				t.Fatalf("status %d, want %d; %s; closing %v", code, tt.code, body, closing)
			}
			if code, body, _ := c.response(); code != http.StatusOK || body != goodAnswer {
				t.Errorf("then: status %d, %s", code, body)
			}
		})
	}
}

// TestRejectedBeforeSent checks that a client that waits for "100 Continue" is rejected without it.
func TestRejectedBeforeSent(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	c := dial(t, address)
	c.send("POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
	if code, body, _ := c.response(); code != http.StatusBadRequest || !strings.Contains(body, "unknown model") {
		t.Errorf("status %d, %s", code, body)
	}
}

// shows: limits
func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.MaxHeader = 8 << 10 })
	for size, want := range map[int]int{7 << 10: 200, 16 << 10: 431} {
		c := dial(t, address)
		c.send("GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", size) + "\r\n\r\n")
		if code, _, closing := c.response(); code != want || closing != (want == 431) {
			t.Errorf("%d bytes: status %d, want %d, closing %v", size, code, want, closing)
		}
	}
}

// TestStalledBody announces more than it sends: the received bytes must be released.
//
// shows: limits
func TestStalledBody(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.StallTimeout = 100 * time.Millisecond })
	binary := `{"inputs":[{"name":"X","shape":[1000],"datatype":"UINT8","parameters":{"binary_data_size":1000}}]}`
	const want = `{"error":"the request's body did not arrive in time: nothing, or too little, was received for 100ms"}`
	for name, request := range map[string]string{
		"nothing":    "Content-Length: 1000\r\n\r\n",
		"JSON":       "Content-Length: 1000\r\n\r\n{",
		"tensor":     "Content-Length: 2000\r\n" + lengthHeader + ": " + strconv.Itoa(len(binary)) + "\r\n\r\n" + binary + "12345",
		"chunks":     "Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n",
		"in a chunk": "Transfer-Encoding: chunked\r\n\r\n5\r\n{ ",
		"generate":   "Content-Length: 1000\r\n\r\n{",
		"compressed": "Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n" + pack(t, "gzip", goodInput)[:30],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, address)
			path := inferPath
			if name == "generate" {
				path = "/v2/models/echo/generate"
			}
			c.send("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + request)
			if code, body, closing := c.response(); code != http.StatusRequestTimeout || body != want || !closing {
				t.Errorf("status %d, %s, closing %v", code, body, closing)
			}
			if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("after the response: %v, want the connection closed", err)
			}
		})
	}
}

// TestExecutionIsNoStall executes longer than a body may stall: the client, which has sent everything, must not be cut off.
func TestExecutionIsNoStall(t *testing.T) {
	t.Parallel()
	address, e := listen(t, func(set *httpapi.Settings) { set.StallTimeout = time.Second })
	c := dial(t, address)
	c.send("POST /v2/models/wait/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(goodInput)) + "\r\n\r\n" + goodInput)
	<-e.Waiting
	over := time.After(2 * time.Second)
	select {
	case <-e.Cancelled:
		t.Error("the request was cancelled")
	case <-over:
	}
	_ = c.Close()
	<-e.Cancelled
}

// TestStalledReader does not read a large response: the connection must end and its memory must be released.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.StallTimeout = 200 * time.Millisecond })
	body, length := binaryRequest(12 << 20)
	c := dial(t, address)
	// A server too busy to read in time ends the connection here already.
	_, _ = io.WriteString(c, "POST "+inferPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"+
		lengthHeader+": "+strconv.Itoa(length)+"\r\n\r\n"+string(body))
	// The end of the server waits for the request.
}

// TestStalledStream stalls one HTTP/2 stream; the connection serves the others.
func TestStalledStream(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.StallTimeout = 2 * time.Second })
	tr := &http.Transport{Protocols: protocols((*http.Protocols).SetUnencryptedHTTP2)}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr}
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	for _, tt := range []struct {
		body io.Reader
		want int
	}{{r, http.StatusRequestTimeout}, {strings.NewReader(goodInput), http.StatusOK}} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+inferPath, tt.body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want || resp.ProtoMajor != 2 {
			t.Errorf("status %d, want %d, over %s", resp.StatusCode, tt.want, resp.Proto)
		}
	}
}
