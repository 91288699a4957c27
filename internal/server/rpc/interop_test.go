package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

// TestInterop runs gRPC's interoperability tests with grpc-go's client: with encryption and without, with compressed messages, and with
// small windows.
func TestInterop(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	for _, tt := range []struct {
		name   string
		change func(*rpc.Settings)
		opts   []grpc.DialOption
	}{
		{"plain", nil, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}},
		{
			"TLS", func(s *rpc.Settings) { s.Credentials = credentials.NewTLS(server) },
			[]grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(client))},
		},
		{"gzip", nil, []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)),
		}},
		{"large windows", func(s *rpc.Settings) { s.Window, s.ConnWindow = 1<<20, 2<<20 }, []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(1 << 20),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := settings()
			set.MaxHeaders = 64 << 10
			if tt.change != nil {
				tt.change(&set)
			}
			s := rpc.New(set)
			testpb.RegisterTestServiceServer(s, interop.NewTestServer())
			conn := dial(t, serve(t, s), tt.opts...)
			c := testpb.NewTestServiceClient(conn)
			// They end the process when they fail.
			for _, test := range []func(context.Context, testpb.TestServiceClient, ...grpc.CallOption){
				interop.DoEmptyUnaryCall, interop.DoLargeUnaryCall, interop.DoClientStreaming, interop.DoServerStreaming, interop.DoPingPong,
				interop.DoEmptyStream, interop.DoTimeoutOnSleepingServer, interop.DoCancelAfterBegin, interop.DoCancelAfterFirstResponse,
				interop.DoCustomMetadata, interop.DoStatusCodeAndMessage, interop.DoSpecialStatusMessage,
			} {
				test(t.Context(), c)
			}
			interop.DoUnimplementedMethod(t.Context(), conn)
			interop.DoUnimplementedService(t.Context(), testpb.NewUnimplementedServiceClient(conn))
		})
	}
}

// certificates returns the settings of a server with a certificate of its own, and of a client that trusts it.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	return server, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}
