package machine

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// requestCount counts the calls that come in at the doors of all machines.
type requestCount struct{ calls atomic.Int64 }

var _ stats.Handler = (*requestCount)(nil)

// TagRPC is called once for every call.
func (c *requestCount) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c.calls.Add(1)

	return ctx
}

// HandleRPC is part of stats.Handler.
func (*requestCount) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn is part of stats.Handler.
func (*requestCount) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is part of stats.Handler.
func (*requestCount) HandleConn(context.Context, stats.ConnStats) {}

// Requests returns how many calls of the Talos API have come in.
func (ms *Machines) Requests() int { return int(ms.requests.calls.Load()) }
