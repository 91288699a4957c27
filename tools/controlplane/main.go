// Command controlplane is an xDS control plane on a loopback port: go-control-plane with one snapshot for all clients. Tests of xds:/// targets
// use it.
//
// It prints its address. Each line of its standard input is a snapshot in JSON, which replaces the one before; it prints the
// snapshot's version when it serves it. It ends with its standard input. For example, this serves xds:///models with two addresses, of which the
// first gets three quarters of the requests:
//
//	{"services": {"models": {"places": [{"name": "a", "weight": 3, "addresses": ["127.0.0.1:9001"]}, {"name": "b", "weight": 1, "addresses": ["127.0.0.1:9002"]}]}}}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// input is one snapshot.
type input struct {
	Services map[string]service `json:"services"` // by the name of the target: models for xds:///models
}

// service is what one target resolves to.
type service struct {
	Places []place `json:"places"`
	// Hash names a header. Requests with the same value go to the same address. Optional: without it, requests are balanced by round robin.
	Hash string `json:"hash"`
	// Reported balances requests by the load that servers report.
	Reported bool `json:"reported"`
	// Retries is how often a request is sent again when a server is UNAVAILABLE.
	Retries uint32 `json:"retries"`
}

// place is a locality: it gets the share of requests that its weight has among all.
type place struct {
	Name      string   `json:"name"`
	Weight    uint32   `json:"weight"`
	Addresses []string `json:"addresses"`
	// Unhealthy lists those of the addresses that get no requests.
	Unhealthy []string `json:"unhealthy"`
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to serve")
	flag.Parse()
	if err := run(*address); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// everyone gives all clients the same snapshot.
type everyone struct{}

// ID returns the key of the snapshot.
func (everyone) ID(*core.Node) string { return "all" }

// run serves snapshots until the end of the standard input.
func run(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	// Not the mode for ADS: there a client would have to ask for every resource of the snapshot.
	snapshots := cache.NewSnapshotCache(false, everyone{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, xds.NewServer(ctx, snapshots, nil))
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	fmt.Println(l.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for version := 1; lines.Scan(); version++ {
		var in input
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return fmt.Errorf("line %d: %w", version, err)
		}
		s, err := in.snapshot(strconv.Itoa(version))
		if err != nil {
			return fmt.Errorf("line %d: %w", version, err)
		}
		if err := snapshots.SetSnapshot(ctx, "all", s); err != nil {
			return fmt.Errorf("line %d: %w", version, err)
		}
		fmt.Println(version)
	}
	return lines.Err()
}
