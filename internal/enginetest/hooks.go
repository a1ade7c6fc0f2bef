package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// RegisterResourceHook stores the hook for resources that name it.
func (m *monitor) RegisterResourceHook(
	_ context.Context, request *pulumirpc.RegisterResourceHookRequest,
) (*emptypb.Empty, error) {
	m.recorder.mutex.Lock()
	defer m.recorder.mutex.Unlock()

	m.recorder.hooks[request.GetName()] = request.GetCallback()

	return &emptypb.Empty{}, nil
}

// runHooks runs the hooks before and after a resource is created or updated.
func (m *monitor) runHooks(ctx context.Context, urn string, request *pulumirpc.RegisterResourceRequest) error {
	var (
		names  []string
		before *structpb.Struct // the inputs of an existing resource
	)

	switch updated := slices.Contains(m.recorder.options.Updated, request.GetName()); {
	case updated && m.recorder.options.Hooks:
		before = request.GetObject()
		names = slices.Concat(request.GetHooks().GetBeforeUpdate(), request.GetHooks().GetAfterUpdate())
	case updated:
		names = request.GetHooks().GetAfterUpdate()
	case m.recorder.options.Hooks:
		names = slices.Concat(request.GetHooks().GetBeforeCreate(), request.GetHooks().GetAfterCreate())
	}

	for _, name := range names {
		m.recorder.mutex.Lock()
		hook := m.recorder.hooks[name]
		m.recorder.mutex.Unlock()

		if err := runHook(ctx, hook, &pulumirpc.ResourceHookRequest{
			Urn: urn, Name: request.GetName(), Type: request.GetType(), NewInputs: request.GetObject(),
			OldInputs: before,
		}); err != nil {
			return fmt.Errorf("hook %q failed: %w", name, err)
		}
	}

	return nil
}

func runHook(ctx context.Context, hook *pulumirpc.Callback, request *pulumirpc.ResourceHookRequest) error {
	conn, err := grpc.NewClient(hook.GetTarget(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck

	encoded, err := proto.Marshal(request)
	if err != nil {
		return err
	}

	answer, err := pulumirpc.NewCallbacksClient(conn).Invoke(
		ctx, &pulumirpc.CallbackInvokeRequest{Token: hook.GetToken(), Request: encoded},
	)
	if err != nil {
		return err
	}

	var response pulumirpc.ResourceHookResponse
	if err := proto.Unmarshal(answer.GetResponse(), &response); err != nil || response.GetError() == "" {
		return err
	}

	return errors.New(response.GetError())
}
