package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	weighted "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// snapshot returns the resources of all services: of each a listener, a route, a cluster and its addresses, which have the name of the service.
func (in *input) snapshot(version string) (*cache.Snapshot, error) {
	all := map[resource.Type][]types.Resource{}
	for name, s := range in.Services {
		front, err := s.listener(name)
		if err != nil {
			return nil, err
		}
		addresses, err := s.addresses(name)
		if err != nil {
			return nil, err
		}
		all[resource.ListenerType] = append(all[resource.ListenerType], front)
		all[resource.RouteType] = append(all[resource.RouteType], s.route(name))
		servers, err := s.cluster(name)
		if err != nil {
			return nil, err
		}
		all[resource.ClusterType] = append(all[resource.ClusterType], servers)
		all[resource.EndpointType] = append(all[resource.EndpointType], addresses)
	}
	return cache.NewSnapshot(version, all)
}

// fromHere says that a resource comes over the same stream.
func fromHere() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func (service) listener(name string) (*listener.Listener, error) {
	last, err := anypb.New(&router.Router{})
	if err != nil {
		return nil, err
	}
	m, err := anypb.New(&manager.HttpConnectionManager{
		RouteSpecifier: &manager.HttpConnectionManager_Rds{Rds: &manager.Rds{ConfigSource: fromHere(), RouteConfigName: name}},
		HttpFilters:    []*manager.HttpFilter{{Name: "router", ConfigType: &manager.HttpFilter_TypedConfig{TypedConfig: last}}},
	})
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: m}}, err
}

func (s service) route(name string) *route.RouteConfiguration {
	action := &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: name}}
	if s.Hash != "" {
		action.HashPolicy = []*route.RouteAction_HashPolicy{{PolicySpecifier: &route.RouteAction_HashPolicy_Header_{
			Header: &route.RouteAction_HashPolicy_Header{HeaderName: s.Hash},
		}}}
	}
	if s.Retries > 0 {
		action.RetryPolicy = &route.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(s.Retries)}
	}
	return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{{
		Name: name, Domains: []string{"*"},
		Routes: []*route.Route{{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
			Action: &route.Route_Route{Route: action},
		}},
	}}}
}

func (s service) cluster(name string) (*cluster.Cluster, error) {
	c := &cluster.Cluster{
		Name: name, LbPolicy: cluster.Cluster_ROUND_ROBIN,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: fromHere()},
	}
	if s.Hash != "" {
		c.LbPolicy = cluster.Cluster_RING_HASH
	}
	if !s.Reported {
		return c, nil
	}
	second := durationpb.New(time.Second)
	policy, err := anypb.New(&weighted.ClientSideWeightedRoundRobin{BlackoutPeriod: second, WeightUpdatePeriod: second})
	c.LoadBalancingPolicy = &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{Name: "weighted", TypedConfig: policy},
	}}}
	return c, err
}

func (s service) addresses(name string) (*endpoint.ClusterLoadAssignment, error) {
	all := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, p := range s.Places {
		group := &endpoint.LocalityLbEndpoints{Locality: &core.Locality{Zone: p.Name}, LoadBalancingWeight: wrapperspb.UInt32(max(p.Weight, 1))}
		for _, a := range p.Addresses {
			one, err := addressOf(a)
			if err != nil {
				return nil, fmt.Errorf("service %q: %w", name, err)
			}
			health := core.HealthStatus_HEALTHY
			if slices.Contains(p.Unhealthy, a) {
				health = core.HealthStatus_UNHEALTHY
			}
			group.LbEndpoints = append(group.LbEndpoints, &endpoint.LbEndpoint{
				HealthStatus:   health,
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: one}},
			})
		}
		all.Endpoints = append(all.Endpoints, group)
	}
	return all, nil
}

func addressOf(text string) (*core.Address, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}, nil
}
