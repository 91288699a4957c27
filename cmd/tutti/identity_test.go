package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/internal/server/certs/certstest"
	"github.com/tutti-server/tutti/proto/inference"
)

const (
	userToken     = "user-0123456789abcdef"
	operatorToken = "operator-0123456789abcdef"
	scraperToken  = "scraper-0123456789abcdef"
)

const authText = `
roles:
  user: {apis: [health, metadata, inference, model-repository, statistics], models: ["text-*"]}
  operator: {apis: ["*"]}
  scraper: {apis: [metrics]}
tokens:
- {name: ada, file: user.token, roles: user}
- {name: ops, file: operator.token, roles: operator}
- {name: prometheus, file: scraper.token, roles: scraper}
`

// authFile writes an auth file with its tokens.
func authFile(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"user.token": userToken, "operator.token": operatorToken, "scraper.token": scraperToken, "auth.yaml": text} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "auth.yaml")
}

// copyModels writes a repository of models that return their input.
func copyModels(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		text := `backend: "identity" input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]`
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const copyRequest = `{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"INT32","data":[7]}]}`

// ask sends an HTTP request and returns the status, the header and the body of the response.
func ask(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1]) // in the case that is given
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// TestIdentityHTTP has the same requests on the fast path, on net/http and over HTTP/2.
func TestIdentityHTTP(t *testing.T) {
	t.Parallel()
	root, auth := copyModels(t, "text-a", "image-b"), authFile(t, authText)
	h2 := &http.Protocols{}
	h2.SetUnencryptedHTTP2(true)
	for _, tt := range []struct {
		name   string
		client *http.Client
		args   []string
	}{
		{"fast path", &http.Client{Transport: &http.Transport{}}, nil},
		{"net/http", &http.Client{Transport: &http.Transport{}}, []string{"--http-fast-path=false"}},
		{"HTTP/2", &http.Client{Transport: &http.Transport{Protocols: h2}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, append([]string{"--model-repository", root, "--auth-file", auth, "--model-control-mode=explicit", "--load-model=*"}, tt.args...)...)
			t.Cleanup(tt.client.CloseIdleConnections) // before the server stops, which waits for its clients to leave
			askAll(t, tt.client, a)
		})
	}
}

func askAll(t *testing.T, c *http.Client, a addresses) {
	t.Helper()
	const infer, user, operator, wrong = "POST /v2/models/text-a/infer", "Bearer " + userToken, "Bearer " + operatorToken, "Bearer wrong"
	for _, tt := range []struct {
		request string
		tokens  []string
		code    int
		want    string
	}{
		{infer, nil, 401, "this server needs a token"},
		{infer, []string{wrong}, 401, "is not known"},
		{infer, []string{user}, 200, `"data":[7]`},
		{infer, []string{operator}, 200, `"data":[7]`},
		{infer, []string{wrong, user}, 401, "more than once"},
		{infer, []string{user, wrong}, 401, "more than once"},
		{infer, []string{"Bearer " + strings.Repeat("a", 20<<10)}, 401, "longer than 16 KiB"},
		{"POST /v2/models/image-b/infer", []string{user}, 403, "'ada' may not use 'inference' of model 'image-b'"},
		{"POST /v2/models/%69mage-b/infer", []string{user}, 403, "of model 'image-b'"},
		{"POST /v2/models/text-a%2F..%2Fimage-b/infer", []string{user}, 404, ""},
		{"POST /v2/models/image-b/versions/1/infer", []string{user}, 403, "image-b"},
		{"POST /v2/models/image-b/generate", []string{user}, 403, "image-b"},
		{"POST /v2//models/image-b/infer", []string{user}, 404, ""},
		{"GET /v2/models/image-b", []string{user}, 403, "'metadata' of model 'image-b'"},
		{"GET /v2/models/image-b/config", []string{user}, 403, "'model-config' of model 'image-b'"},
		{"POST /v2/repository/index", []string{user}, 200, `"text-a"`},
		{"POST /v2/repository/index", []string{operator}, 200, `"image-b"`},
		{"GET /v2/models/stats", []string{user}, 200, `"text-a"`},
		{"GET /api/status", []string{user}, 200, `"text-a"`},
		{"POST /v2/repository/models/image-b/unload", []string{user}, 403, "'model-repository' of model 'image-b'"},
		{"POST /v2/repository/models/image-b/load", []string{operator}, 200, ""},
		{"GET /v2/logging", []string{user}, 403, "'logging'"},
		{"GET /v2/trace/setting", []string{user}, 403, "'trace'"},
		{"GET /v2/health/live", nil, 401, ""},
		{"GET /v2/health/live", []string{user}, 200, ""},
		{"PUT " + "/v2/models/text-a/infer", nil, 401, ""},
		{"GET /ui/api/models", nil, 401, "needs a token"},
		{"GET /ui/api/models", []string{user}, 403, "'dashboard'"},
		{"GET /ui/api/models", []string{operator}, 200, "image-b"},
		{"GET /ui/api/events", []string{user}, 403, "'dashboard'"},
		{"GET /ui/api/session", nil, 200, `{"token":true,"admitted":false}`},
		{"GET /ui/api/session", []string{operator}, 200, `{"token":true,"admitted":true}`},
		{"PUT /ui/api/sampling", []string{user}, 403, ""},
		{"GET /ui/", nil, 200, "<html"},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		body := ""
		if strings.HasSuffix(path, "infer") {
			body = copyRequest
		}
		var header []string
		for _, token := range tt.tokens {
			header = append(header, "authorization", token)
		}
		code, h, got := ask(t, c, method, "http://"+a.http+path, body, header...)
		if code != tt.code || !strings.Contains(got, tt.want) {
			t.Errorf("%s with %.40s: %d, %s, want %d, %s", tt.request, tt.tokens, code, got, tt.code, tt.want)
		}
		if (code == 401) != (h.Get("WWW-Authenticate") == `Bearer realm="tutti"`) {
			t.Errorf("%s: status %d with WWW-Authenticate %q", tt.request, code, h.Get("WWW-Authenticate"))
		}
		if strings.Contains(got, "0123456789abcdef") || len(tt.tokens) == 1 && tt.tokens[0] == user && code == 200 && strings.Contains(got, "image-b") {
			t.Errorf("%s says too much: %s", tt.request, got)
		}
	}
	if a.metrics == "" {
		t.Fatal("there are no metrics")
	}
	for token, want := range map[string]int{"": 401, userToken: 403, scraperToken: 200} {
		code, _, got := ask(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, http.MethodGet, "http://"+a.metrics+"/metrics", "", "Authorization", "Bearer "+token)
		if code != want || code == 200 && !strings.Contains(got, "ensemble_forbidden_requests_total") {
			t.Errorf("metrics with '%s': %d, %.100s", token, code, got)
		}
	}
}

// dialWith returns a gRPC connection to a server.
func dialWith(t *testing.T, address string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func copyMessage(model string) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: model, Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{{7, 0, 0, 0}},
	}
}

// TestIdentityGRPC calls methods of all kinds with tokens.
func TestIdentityGRPC(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository", copyModels(t, "text-a", "image-b"), "--auth-file", authFile(t, authText))
	conn := dialWith(t, a.grpc, insecure.NewCredentials())
	c := inference.NewGRPCInferenceServiceClient(conn)
	infer := func(model string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.ModelInfer(ctx, copyMessage(model)); return err }
	}
	stream := func(model string) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := c.ModelStreamInfer(metadata.AppendToOutgoingContext(ctx, "triton_grpc_error", "true"))
			if err != nil {
				return err
			}
			if err := s.Send(copyMessage(model)); err != nil && err != io.EOF { //nolint:errorlint // of grpc
				return err
			}
			_ = s.CloseSend()
			_, err = s.Recv()
			return err
		}
	}
	health := func(ctx context.Context) error {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	reflection := func(ctx context.Context) error {
		s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		if err = s.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err == nil || err == io.EOF { //nolint:errorlint // of grpc
			_, err = s.Recv()
		}
		_ = s.CloseSend()
		return err
	}
	config := func(ctx context.Context) error {
		_, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "text-a"})
		return err
	}
	meta := func(ctx context.Context) error {
		_, err := c.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "image-b"})
		return err
	}
	for _, tt := range []struct {
		name   string
		call   func(context.Context) error
		tokens []string
		want   codes.Code
	}{
		{"infer", infer("text-a"), nil, codes.Unauthenticated},
		{"infer", infer("text-a"), []string{"wrong"}, codes.Unauthenticated},
		{"infer", infer("text-a"), []string{"wrong", userToken}, codes.Unauthenticated},
		{"infer", infer("text-a"), []string{userToken, "wrong"}, codes.Unauthenticated},
		{"infer", infer("text-a"), []string{scraperToken}, codes.PermissionDenied},
		{"infer", infer("text-a"), []string{userToken}, codes.OK},
		{"infer image-b", infer("image-b"), []string{userToken}, codes.PermissionDenied},
		{"infer image-b", infer("image-b"), []string{operatorToken}, codes.OK},
		{"stream", stream("text-a"), nil, codes.Unauthenticated},
		{"stream", stream("text-a"), []string{userToken}, codes.OK},
		{"stream image-b", stream("image-b"), []string{userToken}, codes.PermissionDenied},
		{"health", health, nil, codes.Unauthenticated},
		{"health", health, []string{userToken}, codes.OK},
		{"reflection", reflection, nil, codes.Unauthenticated},
		{"reflection", reflection, []string{scraperToken}, codes.PermissionDenied},
		{"reflection", reflection, []string{userToken}, codes.OK},
		{"config", config, []string{userToken}, codes.PermissionDenied},
		{"config", config, []string{operatorToken}, codes.OK},
		{"metadata", meta, []string{userToken}, codes.PermissionDenied},
		{"metadata", meta, []string{operatorToken}, codes.OK},
	} {
		md := metadata.MD{}
		for _, token := range tt.tokens {
			md.Append("Authorization", "Bearer "+token)
		}
		if err := tt.call(metadata.NewOutgoingContext(t.Context(), md)); grpcstatus.Code(err) != tt.want {
			t.Errorf("%s with %s: %v, want %v", tt.name, tt.tokens, err, tt.want)
		} else if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Error("the error has the secret:", err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+userToken)
	index, err := c.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil || len(index.GetModels()) != 1 || index.GetModels()[0].GetName() != "text-a" {
		t.Errorf("the index: %v, %v", index, err)
	}
	stats, err := c.ModelStatistics(ctx, &inference.ModelStatisticsRequest{})
	if err != nil || len(stats.GetModelStats()) != 1 {
		t.Errorf("statistics: %v, %v", stats, err)
	}
}

// TestIdentityIssuer sends tokens of an issuer that starts to serve its keys after the server.
func TestIdentityIssuer(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	issuer := httptest.NewServer(mux)
	defer issuer.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, issuer.URL, issuer.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "k", Key: key.Public(), Use: "sig"}}})
	})
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(fmt.Appendf(nil, `{"iss":%q,"aud":"tutti","sub":"grace","exp":%d}`, issuer.URL, time.Now().Add(time.Hour).Unix()))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	auth := authFile(t, authText+"issuers:\n- {issuer: '"+issuer.URL+"', audience: tutti, roles: user}\n")
	a := serve(t, "--model-repository", copyModels(t, "text-a", "image-b"), "--auth-file", auth)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	grpcClient := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, insecure.NewCredentials()))
	for range 2 { // the second is remembered
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		if _, err := grpcClient.ModelInfer(ctx, copyMessage("text-a")); err != nil {
			t.Error(err)
		}
		if code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+"/v2/models/text-a/infer", copyRequest, "Authorization", "Bearer "+token); code != 200 {
			t.Error(code, got)
		}
	}
	if code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+"/v2/models/image-b/infer", copyRequest, "Authorization", "Bearer "+token); code != 403 || !strings.Contains(got, "'grace'") {
		t.Error(code, got)
	}
	bad := token[:len(token)-8] + "AAAAAAAA"
	if _, err := grpcClient.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+bad), copyMessage("text-a")); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

// TestIdentityCertificate identifies clients by their certificates, which the TLS listeners have verified.
func TestIdentityCertificate(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "gateway", time.Now())
	cert, key := id.Files.Cert, id.Files.Key
	for common, want := range map[string]bool{"gateway": true, "other": false} {
		auth := authFile(t, authText+"certificates:\n- {common-name: "+common+", san: 127.0.0.1, roles: user}\n")
		args := []string{"--model-repository", copyModels(t, "text-a"), "--auth-file", auth}
		for _, name := range []string{"http", "grpc"} {
			args = append(args, "--"+name+"-use-ssl-mutual=true", "--"+name+"-server-cert="+cert, "--"+name+"-server-key="+key, "--"+name+"-root-cert="+cert)
		}
		a := serve(t, args...)
		known := &tls.Config{RootCAs: id.Pool, Certificates: []tls.Certificate{id.Cert}, MinVersion: tls.VersionTLS12}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: known, DisableKeepAlives: true}}
		code, _, got := ask(t, c, http.MethodPost, "https://"+a.http+"/v2/models/text-a/infer", copyRequest)
		if (code == 200) != want || !want && code != 401 {
			t.Errorf("%s: %d, %s", common, code, got)
		}
		_, err := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, credentials.NewTLS(known))).ModelInfer(t.Context(), copyMessage("text-a"))
		if (err == nil) != want || !want && grpcstatus.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", common, err)
		}
	}
}

// TestRemoteControl sends changes as a proxy for another machine does, and as a client of this one, without an auth file.
func TestRemoteControl(t *testing.T) {
	t.Parallel()
	root := copyModels(t, "m")
	changes := []string{
		"/v2/repository/models/m/load", "/v2/repository/models/m/unload", "/v2/repository/models/m/load", "/v2/logging", "/v2/trace/setting",
		"/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/region/r/register",
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		args []string
		open bool
	}{
		{nil, false},
		{[]string{"--allow-remote-control=true"}, true},
		{[]string{"--http-restricted-api=model-repository,logging,trace,shared-memory:k=v", "--grpc-restricted-protocol=model-repository:k=v"}, true},
	} {
		audit := filepath.Join(t.TempDir(), "audit.jsonl")
		a := serve(t, append([]string{"--model-repository", root, "--model-control-mode=explicit", "--load-model=*", "--audit-log", audit}, tt.args...)...)
		models := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, insecure.NewCredentials()))
		for _, path := range changes {
			for _, from := range []string{"", "203.0.113.9"} {
				header := []string{"K", "v"}
				if from != "" {
					header = append(header, "X-Forwarded-For", from)
				}
				code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+path, "{}", header...)
				refused := code == 403 && strings.Contains(got, "--allow-remote-control=true")
				if refused != (from != "" && !tt.open) {
					t.Errorf("%v, %s from '%s': %d, %s", tt.args, path, from, code, got)
				}
			}
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-k", "v")
		if _, err := models.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "m"}); err != nil {
			t.Error(err)
		}
		_, err := models.RepositoryModelLoad(metadata.AppendToOutgoingContext(ctx, "x-forwarded-for", "203.0.113.9"), &inference.RepositoryModelLoadRequest{ModelName: "m"})
		if tt.open != (err == nil) || err != nil && grpcstatus.Code(err) != codes.PermissionDenied {
			t.Errorf("%v: %v", tt.args, err)
		}
		for path, want := range map[string]string{"/v2/models/m/infer": `"data":[7]`, "/v2/repository/index": `"m"`} {
			if code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+path, copyRequest, "X-Forwarded-For", "203.0.113.9", "K", "v"); code != 200 || !strings.Contains(got, want) {
				t.Errorf("%s: %d, %s", path, code, got)
			}
		}
		checkAudit(t, audit, tt.open)
	}
}

// checkAudit reads the log of the changes of TestRemoteControl.
func checkAudit(t *testing.T, file string, open bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct{ Who, From, Via, Action, Object, Outcome string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Who != "anonymous" || !strings.HasPrefix(e.From, "127.0.0.1:") {
			t.Errorf("%s: %v", lines.Text(), err)
		}
		count[strings.Join([]string{e.Via, e.Action, e.Object, e.Outcome}, " ")]++
	}
	want := map[string]int{"http model.load m ok": 2, "http model.load m refused": 2, "grpc model.load m ok": 1, "grpc model.load m refused": 1, "http logging.set  ok": 1}
	if open {
		want = map[string]int{"http model.load m ok": 4, "http model.load m refused": 0, "grpc model.load m ok": 2, "grpc model.load m refused": 0, "http logging.set  ok": 2}
	}
	for line, n := range want {
		if count[line] != n {
			t.Errorf("'%s' is there %d times, want %d: %v", line, count[line], n, count)
		}
	}
	if count["http shared-memory.register r failed"] == 0 { // shared memory is off
		t.Errorf("a failed registration is missing: %v", count)
	}
}
