package talosapi

import (
	"context"
	"time"

	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Time implements the time service; the lab's machines have their host's time.
type Time struct {
	timeapi.UnimplementedTimeServiceServer
}

// Time implements the time service.
func (Time) Time(context.Context, *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return timeReply("pool"), nil
}

// TimeCheck implements the time service.
func (Time) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	return timeReply(in.GetServer()), nil
}

func timeReply(server string) *timeapi.TimeResponse {
	now := timestamppb.New(time.Now())

	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Server: server, Localtime: now, Remotetime: now}}}
}
