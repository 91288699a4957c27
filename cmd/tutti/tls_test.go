package main

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tutti-server/tutti/internal/server/certs/certstest"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestTLS checks that both protocols are encrypted and refuse clients without a trusted certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "server", time.Now())
	cert, key := id.Files.Cert, id.Files.Key
	args := []string{"--model-repository", t.TempDir()}
	for _, name := range []string{"http", "grpc"} {
		args = append(args, "--"+name+"-use-ssl-mutual=true", "--"+name+"-server-cert="+cert, "--"+name+"-server-key="+key, "--"+name+"-root-cert="+cert)
	}
	a := serve(t, args...)
	known := &tls.Config{RootCAs: id.Pool, Certificates: []tls.Certificate{id.Cert}, MinVersion: tls.VersionTLS12}
	unknown := &tls.Config{RootCAs: id.Pool, MinVersion: tls.VersionTLS12}
	for _, send := range []func(*testing.T, addresses, *tls.Config) error{getHTTPS, callGRPCS} {
		if err := send(t, a, known); err != nil {
			t.Error(err)
		}
		if err := send(t, a, unknown); err == nil {
			t.Error("a client without a certificate got a response")
		}
	}
}

func getHTTPS(t *testing.T, a addresses, c *tls.Config) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + a.http + "/v2/health/live") //nolint:noctx // ends with the server
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func callGRPCS(t *testing.T, a addresses, c *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = inference.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &inference.ServerLiveRequest{})
	return err
}
