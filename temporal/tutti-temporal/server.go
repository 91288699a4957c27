package main

import (
	"fmt"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	schema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
	"google.golang.org/protobuf/types/known/durationpb"
)

// clusterName is a name that Temporal stores in the database.
const clusterName = "tutti"

// moduleVersion is the version of the Temporal server that the program is built from.
func moduleVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == "go.temporal.io/server" {
			return m.Version
		}
	}
	return "unknown"
}

// tuning are Temporal's dynamic settings. The queue processors look for new tasks at most 20 times in a second by
// default, to spare a shared database; each workflow task waits for it. Here the database is in the process.
// By default the frontend sends its version, its platform and those of its clients to temporal.io once a day.
func tuning() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   500,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      500,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): 100,
		dynamicconfig.MatchingEnableFairness.Key():        true,
		dynamicconfig.EnableServerVersionCheck.Key():      false,
	}
}

// open makes the server, and the namespace if it is missing.
func open(file string, s settings, p ports, log *logger) (temporal.Server, error) {
	db := database(file)
	ns, err := schema.NewNamespaceConfig(clusterName, s.namespace, false, nil)
	if err != nil {
		return nil, err
	}
	ns.Detail.Config.Retention = durationpb.New(time.Duration(s.days) * 24 * time.Hour)
	if err := schema.CreateNamespaces(db, ns); err != nil {
		return nil, fmt.Errorf("namespace %q cannot be registered: %w", s.namespace, err)
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range p.services() {
		at := net.JoinHostPort(loopback, strconv.Itoa(port))
		hosts[name] = static.Hosts{All: []string{at}, Self: at}
	}
	return temporal.NewServer(
		temporal.WithConfig(configuration(db, p)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithDynamicConfigClient(tuning()),
	)
}

// services are the ports by service.
func (p ports) services() map[primitives.ServiceName]int {
	return map[primitives.ServiceName]int{
		primitives.FrontendService: p.frontend, primitives.HistoryService: p.history,
		primitives.MatchingService: p.matching, primitives.WorkerService: p.worker,
	}
}

// configuration is what Temporal's own YAML file would have.
func configuration(db *config.SQL, p ports) *config.Config {
	address := net.JoinHostPort(loopback, strconv.Itoa(p.frontend))
	c := &config.Config{
		Persistence: config.Persistence{
			DefaultStore: sqlite.PluginName, VisibilityStore: sqlite.PluginName, NumHistoryShards: 1,
			DataStores: map[string]config.DataStore{sqlite.PluginName: {SQL: db}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            map[string]config.Service{},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
		PublicClient: config.PublicClient{HostPort: address},
	}
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback}
	for name, port := range p.services() {
		c.Services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
	}
	return c
}
