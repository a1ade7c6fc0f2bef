package listeners

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// Requests counts the calls that all machines receive.
type Requests struct{ calls atomic.Int64 }

var _ stats.Handler = (*Requests)(nil)

// TagRPC is called once for every call.
func (c *Requests) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c.calls.Add(1)

	return ctx
}

// HandleRPC is part of stats.Handler.
func (*Requests) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn is part of stats.Handler.
func (*Requests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is part of stats.Handler.
func (*Requests) HandleConn(context.Context, stats.ConnStats) {}

// Count returns the number of received calls.
func (c *Requests) Count() int { return int(c.calls.Load()) }
