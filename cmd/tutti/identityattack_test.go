package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"

	"github.com/tutti-server/tutti/internal/server/certs/certstest"
	"github.com/tutti-server/tutti/proto/inference"
)

// attackTime is the time limit of a connection in these tests, on a machine under load.
const attackTime = 5 * time.Minute

// TestIdentityVariants sends requests without the right to what they ask for, in forms that parsers read differently: as HTTP/1.1 on the fast path
// and on net/http. None is answered as if it had the right.
func TestIdentityVariants(t *testing.T) {
	t.Parallel()
	root, auth := copyModels(t, "text-a", "image-b"), authFile(t, authText)
	user := "Authorization: Bearer " + userToken
	post := func(target string, headers ...string) string {
		head := append([]string{"POST " + target + " HTTP/1.1", "Host: localhost", "Connection: close"}, headers...)
		return strings.Join(append(head, "Content-Length: "+strconv.Itoa(len(copyRequest)), "", copyRequest), "\r\n")
	}
	const mine, other = "/v2/models/text-a/infer", "/v2/models/image-b/infer"
	var attacks []string
	for _, at := range []string{
		"/v2//models/text-a/infer", "//v2/models/text-a/infer", "/v2/models/text-a/infer/", "/v2/./models/text-a/infer", "/v2/x/../models/text-a/infer",
		"/v2%2fmodels%2ftext-a%2finfer", "/v2/models/text-a%2finfer", "/v2/models/text-a/infer%00", "/v2/models/text-a/infer;x", "/V2/models/text-a/infer",
		"/v2/models/text-a/INFER", "/v2/models/text-a./infer", "http://localhost" + mine, "http://evil.example" + mine, mine + "?authorization=Bearer%20" + userToken,
		"/%76%32/models/text-a/infer", "/ui/.." + mine, "/ui/api/.." + mine, "/ui/%2e%2e" + mine, "/v2/health/live/../../models/text-a/infer", mine,
	} {
		attacks = append(attacks, post(at))
	}
	for _, at := range []string{ // with the right to text-a
		other, "/v2/models/text-a/../image-b/infer", "/v2/models/text-a%2f..%2fimage-b/infer", "/v2/models/image%2db/infer", "/v2//models/image-b/infer",
		"/v2/models/text-a/versions/../../image-b/infer", "/v2/models/image-b/versions/1/infer", "/v2/models/image-b/generate", "/v2/models/*/infer", "/v2/models/text-*/infer",
	} {
		attacks = append(attacks, post(at, user))
	}
	attacks = append(
		attacks,
		post(mine, "authorization : Bearer "+userToken), post(mine, "X-Authorization: Bearer "+userToken), post(mine, "Proxy-Authorization: Bearer "+userToken),
		post(mine, "Cookie: Authorization=Bearer "+userToken), post(mine, "Authorization: Basic "+userToken), post(mine, "Authorization: Bearer "+userToken[:len(userToken)-1]),
		post(mine, "Authorization: Bearer "+userToken+","+userToken), post(mine, "Authorization: Bearer\t"+userToken), post(mine, "Authorization: "+userToken),
		post(mine, "Authorization: Bearer wrong", user), post(mine, user, "authorization: Bearer wrong"), post(mine, user, user),
		post("/v2/health/live", "X-Original-URL: "+mine, "X-Rewrite-URL: "+mine), post("/v2/health/live", "X-HTTP-Method-Override: GET"),
		post(mine, "X-Forwarded-For: 127.0.0.1", "X-Real-IP: ::1"), post(mine, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"),
		post("/ui/api/models/image-b/unload", user), post("/ui/api/models/image-b/unload", "Origin: http://localhost"),
		"GET /ui/api/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n",
		"TRACE "+mine+" HTTP/1.1\r\nHost: localhost\r\n"+user+"\r\nConnection: close\r\n\r\n",
		"HEAD /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"OPTIONS "+mine+" HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n",
		"GET /v2 HTTP/1.0\r\n\r\n", "GET /v2 HTTP/1.1\r\nHost: localhost\r\n"+strings.TrimSuffix(user, "f")+"\r\n f\r\nConnection: close\r\n\r\n",
	)
	for _, flags := range [][]string{nil, {"--http-fast-path=false"}} {
		a := serve(t, append([]string{"--model-repository", root, "--auth-file", auth, "--model-control-mode=explicit", "--load-model=*", "--dashboard-token=dash-0123456789"}, flags...)...)
		for _, text := range attacks {
			code, got := sendRaw(t, a.http, text)
			if code < 300 || code >= 500 && code != http.StatusNotImplemented || strings.Contains(got, `"data":[7]`) || strings.Contains(got, "0123456789abcdef") || strings.Contains(strings.ToLower(got), "access-control-allow") {
				t.Errorf("%v: %d for\n%.200s\n%.400s", flags, code, text, got)
			}
		}
		whole := dialRaw(t, a.http, post(mine, user)) // its sending half stays open: closing it may cancel the request
		if code, got := readRaw(whole); code != http.StatusOK || !strings.Contains(got, `"data":[7]`) {
			t.Errorf("%v: with the right: %d, %s", flags, code, got)
		}
		_ = whole.Close()
		// A request that is refused must not carry a second one into the connection.
		smuggled := post(mine, user)
		for _, framing := range []string{
			"Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 0\r\nContent-Length: 5", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Content-Length: +5",
		} {
			text := "POST " + other + " HTTP/1.1\r\nHost: localhost\r\n" + user + "\r\n" + framing + "\r\n\r\n0\r\n\r\n" + smuggled
			if code, got := sendRaw(t, a.http, text); code < 400 || strings.Count(got, `"data":[7]`) > 1 {
				t.Errorf("%v: %s: %d, %s", flags, framing, code, got)
			}
		}
	}
}

// dialRaw connects to a server for attackTime at most and sends the first bytes. The caller must close the connection.
func dialRaw(t *testing.T, address, first string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(attackTime))
	if _, err := io.WriteString(conn, first); err != nil {
		_ = conn.Close()
		t.Fatal(err)
	}
	return conn
}

// sendRaw sends bytes and returns the status and the text of the response, and of what follows it.
func sendRaw(t *testing.T, address, text string) (code int, got string) {
	t.Helper()
	conn := dialRaw(t, address, text)
	defer conn.Close()
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	return readRaw(conn)
}

// readRaw reads until the server closes the connection, and returns the status and the text of the response, and of what follows it.
func readRaw(conn net.Conn) (code int, got string) {
	b, _ := io.ReadAll(conn) // a reset counts as the end
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(b))), nil)
	if err != nil {
		return http.StatusBadRequest, string(b) // the connection was closed without a response
	}
	_ = resp.Body.Close()
	return resp.StatusCode, string(b)
}

// TestIdentityPseudoHeaders calls gRPC methods by paths that are not those of the service, and with pseudo-headers that contradict each other. None
// reaches a method that the token may not call.
func TestIdentityPseudoHeaders(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository", copyModels(t, "text-a", "image-b"), "--auth-file", authFile(t, authText))
	const config = "/inference.GRPCInferenceService/ModelConfig"
	for _, fields := range [][][2]string{
		{{":path", config}},
		{{":path", config[1:]}},
		{{":path", "/" + config}},
		{{":path", config + "/"}},
		{{":path", "/inference.GRPCInferenceService//ModelConfig"}},
		{{":path", "/inference.GRPCInferenceService/../inference.GRPCInferenceService/ModelConfig"}},
		{{":path", "/inference.grpcinferenceservice/modelconfig"}},
		{{":path", "/inference.GRPCInferenceService/ModelConfig?x"}},
		{{":path", "/inference.GRPCInferenceService%2fModelConfig"}},
		{{":path", "/x.Y/ServerLive"}},
		{{":path", "/inference.GRPCInferenceService/ServerLive"}, {":path", config}},
		{{":path", config}, {"authorization", "Bearer wrong"}},
		{{":path", config}, {"grpc-encoding", "gzip"}},
		{{":path", "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}},
		{{":path", ""}},
		{{":path", "*"}},
	} {
		if status, message := rawCall(t, a.grpc, fields); status == "0" || message == "" && status == "" {
			t.Errorf("%v: grpc-status %s, %s", fields, status, message)
		}
	}
	if status, message := rawCall(t, a.grpc, [][2]string{{":path", "/inference.GRPCInferenceService/ServerLive"}}); status != "0" {
		t.Errorf("with the right: %s, %s", status, message)
	}
}

// rawCall sends an empty message with these fields behind the usual ones, and returns how the call ended; for a stream or connection that was reset,
// the reason as message.
func rawCall(t *testing.T, address string, fields [][2]string) (status, message string) {
	t.Helper()
	conn := dialRaw(t, address, http2.ClientPreface)
	defer conn.Close()
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	list := append([][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}}, fields...)
	for _, h := range append(list, [2]string{"content-type", "application/grpc"}, [2]string{"te", "trailers"}, [2]string{"authorization", "Bearer " + userToken}) {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true})
	_ = f.WriteData(1, true, make([]byte, 5))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return status, "closed: " + err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				switch h.Name {
				case "grpc-status":
					status = h.Value
				case "grpc-message":
					message = h.Value
				}
			}
			if frame.StreamEnded() {
				return status, message + " "
			}
		case *http2.RSTStreamFrame:
			return status, "reset: " + frame.ErrCode.String()
		case *http2.GoAwayFrame:
			return status, "gone: " + frame.ErrCode.String()
		}
	}
}

// TestIdentityForgedCertificate connects with certificates that have the right names, and are signed by themselves or by another authority.
func TestIdentityForgedCertificate(t *testing.T) {
	t.Parallel()
	id, forged := certstest.Write(t, t.TempDir(), "gateway", time.Now()), certstest.Write(t, t.TempDir(), "gateway", time.Now())
	auth := authFile(t, authText+"certificates:\n- {common-name: gateway, roles: user}\n")
	args := []string{"--model-repository", copyModels(t, "text-a"), "--auth-file", auth}
	for _, name := range []string{"http", "grpc"} {
		args = append(args, "--"+name+"-use-ssl-mutual=true", "--"+name+"-server-cert="+id.Files.Cert, "--"+name+"-server-key="+id.Files.Key, "--"+name+"-root-cert="+id.Files.Cert)
	}
	a := serve(t, args...)
	mixed := forged.Cert
	mixed.Certificate = [][]byte{forged.Cert.Certificate[0], id.Cert.Certificate[0]} // followed by one that is trusted
	for name, certificates := range map[string][]tls.Certificate{"none": nil, "self-signed": {forged.Cert}, "self-signed with a chain": {mixed}} {
		config := &tls.Config{RootCAs: id.Pool, Certificates: certificates, MinVersion: tls.VersionTLS12}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+a.http+"/v2/models/text-a/infer", strings.NewReader(copyRequest))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := c.Do(req); err == nil {
			t.Errorf("%s: %s", name, resp.Status)
			_ = resp.Body.Close()
		}
		if _, err := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, credentials.NewTLS(config))).ModelInfer(t.Context(), copyMessage("text-a")); err == nil {
			t.Errorf("%s: a call was answered", name)
		}
	}
}
