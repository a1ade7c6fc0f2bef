package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/internal/handover"
	talosrequest "talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// monitor implements the engine's interfaces for a program.
type monitor struct {
	pulumirpc.UnimplementedResourceMonitorServer
	pulumirpc.UnimplementedEngineServer

	recorder *Recorder
}

func (r *Recorder) serve() (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("unable to listen for the program: %w", err)
	}

	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 28))
	m := &monitor{recorder: r}
	pulumirpc.RegisterResourceMonitorServer(server, m)
	pulumirpc.RegisterEngineServer(server, m)

	done := make(chan struct{})

	go func() {
		defer close(done)

		_ = server.Serve(listener)
	}()

	return listener.Addr().String(), func() {
		server.Stop()
		<-done
	}, nil
}

func marshalOptions() plugin.MarshalOptions {
	return plugin.MarshalOptions{KeepUnknowns: true, KeepSecrets: true, KeepResources: true}
}

// SupportsFeature reports whether the engine supports a feature.
func (m *monitor) SupportsFeature(
	_ context.Context, request *pulumirpc.SupportsFeatureRequest,
) (*pulumirpc.SupportsFeatureResponse, error) {
	known := []string{
		"secrets", "resourceReferences", "deletedWith", "replaceWith", "aliasSpecs", "errorHooks", "resourceHooks",
	}

	return &pulumirpc.SupportsFeatureResponse{HasSupport: slices.Contains(known, request.GetId())}, nil
}

// RegisterErrorHook accepts the hook, which is never called: no resource fails here.
func (m *monitor) RegisterErrorHook(context.Context, *pulumirpc.RegisterErrorHookRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// RegisterPackage serves SDKs that are generated from a parameter; the reference is never used.
func (m *monitor) RegisterPackage(
	context.Context, *pulumirpc.RegisterPackageRequest,
) (*pulumirpc.RegisterPackageResponse, error) {
	return &pulumirpc.RegisterPackageResponse{Ref: "package"}, nil
}

// RegisterResource records the registration and returns the provider's state.
func (m *monitor) RegisterResource(
	ctx context.Context, request *pulumirpc.RegisterResourceRequest,
) (*pulumirpc.RegisterResourceResponse, error) {
	inputs, err := plugin.UnmarshalProperties(request.GetObject(), marshalOptions())
	if err != nil {
		return nil, err
	}

	urn := fmt.Sprintf(
		"urn:pulumi:%s::talos-proxmox::%s::%s", m.recorder.options.Stack, request.GetType(), request.GetName(),
	)

	taken, err := takeRequest(inputs)
	if err != nil && !m.recorder.options.Preview {
		return nil, err
	}

	if request.GetType() != string(resource.RootStackType) {
		m.recorder.mutex.Lock()
		m.recorder.registrations = append(m.recorder.registrations, Registration{
			Type:    request.GetType(),
			Name:    request.GetName(),
			Parent:  nameOf(request.GetParent()),
			Inputs:  inputs,
			Request: request,
			urn:     urn,
			taken:   taken,
			secrets: m.recorder.options.machineSecrets().Mappable(),
		})
		m.recorder.mutex.Unlock()
	}

	if err := m.runHooks(ctx, urn, request); err != nil {
		return nil, err
	}

	id, state := m.recorder.options.providerState(request, inputs)

	object, err := plugin.MarshalProperties(state, marshalOptions())
	if err != nil {
		return nil, err
	}

	return &pulumirpc.RegisterResourceResponse{Urn: urn, Id: id, Object: object}, nil
}

// providerState returns the ID and the state that a provider would return for a resource.
func (o Options) providerState(
	request *pulumirpc.RegisterResourceRequest, inputs resource.PropertyMap,
) (string, resource.PropertyMap) {
	if !request.GetCustom() {
		return "", resource.PropertyMap{} // the engine does not return inputs of local components
	}

	state := inputs.Copy()

	id := request.GetName() + "-id"
	switch request.GetType() {
	case tokens.Schematic:
		schematic := inputs["schematic"]
		if schematic.IsSecret() {
			schematic = schematic.SecretValue().Element
		}

		digest := sha256.Sum256([]byte(schematic.StringValue()))

		id = hex.EncodeToString(digest[:])
		if o.SchematicID != "" {
			id = o.SchematicID
		}
	case tokens.Secrets:
		if o.Contract != "" {
			state["talosVersion"] = resource.NewProperty(o.Contract)
		}

		state["machineSecrets"] = secret(o.machineSecrets())
		state["clientConfiguration"] = secret(resource.PropertyMap{
			"caCertificate":     resource.NewProperty("Y2E="),
			"clientCertificate": resource.NewProperty("Y2VydGlmaWNhdGU="),
			"clientKey":         resource.NewProperty(ClientKey),
		})
	case tokens.Kubeconfig:
		state["kubeconfigRaw"] = secret(KubeconfigText)
	case tokens.RemoteCommand, tokens.LocalCommand:
		if facts, ok := o.prepOutput(request.GetName(), inputs); ok {
			state["stdout"] = resource.NewProperty(facts)
		}

		if create := inputs["create"]; create.IsString() && strings.HasSuffix(create.StringValue(), " wait") {
			state["stdout"] = secret(o.gateOutput(inputs["stdin"]))
		}

		if create := inputs["create"]; create.IsString() && strings.HasSuffix(create.StringValue(), " volume") {
			state["stdout"] = secret(volumeOutput(inputs["stdin"]))
		}
	}

	if exists := request.GetType() == tokens.Secrets && o.Contract != ""; o.Preview && !exists {
		id = ""

		for _, key := range []resource.PropertyKey{"machineSecrets", "clientConfiguration", "kubeconfigRaw", "stdout"} {
			delete(state, key) // as the engine omits unknown outputs
		}
	}

	return id, state
}

// takeRequest takes the request of a command from the program, as talosops does; empty = its input has all of it.
func takeRequest(inputs resource.PropertyMap) (string, error) {
	stdin := inputs["stdin"]
	if !stdin.IsSecret() || !stdin.SecretValue().Element.IsString() {
		return "", nil
	}

	text := stdin.SecretValue().Element.StringValue()
	if _, elsewhere, _ := talosrequest.Open(text); !elsewhere {
		return "", nil
	}

	return handover.Take(text)
}

// machineSecrets returns secrets of no cluster, with the authorities and the token of the options.
func (o Options) machineSecrets() resource.PropertyMap {
	values, err := talos.PlaceholderSecrets()
	if err != nil {
		panic(err)
	}

	all := resource.NewPropertyMapFromMap(values)
	all["secrets"].ObjectValue()["bootstrapToken"] = resource.NewProperty(MachineSecret)

	for kind, certificate := range o.Authorities {
		all["certs"].ObjectValue()[resource.PropertyKey(kind)].ObjectValue()["cert"] = resource.NewProperty(certificate)
	}

	return all
}

func secret(value any) resource.PropertyValue {
	return resource.MakeSecret(resource.NewPropertyValue(value))
}

// RegisterResourceOutputs records the outputs of components and of the stack.
func (m *monitor) RegisterResourceOutputs(
	_ context.Context, request *pulumirpc.RegisterResourceOutputsRequest,
) (*emptypb.Empty, error) {
	outputs, err := plugin.UnmarshalProperties(request.GetOutputs(), marshalOptions())
	if err != nil {
		return nil, err
	}

	m.recorder.mutex.Lock()
	defer m.recorder.mutex.Unlock()

	m.recorder.outputs[request.GetUrn()] = outputs

	return &emptypb.Empty{}, nil
}

// Invoke serves the functions that the program calls.
func (m *monitor) Invoke(
	_ context.Context, request *pulumirpc.ResourceInvokeRequest,
) (*pulumirpc.ResourceInvokeResponse, error) {
	arguments, err := plugin.UnmarshalProperties(request.GetArgs(), marshalOptions())
	if err != nil {
		return nil, err
	}

	m.recorder.mutex.Lock()
	m.recorder.calls = append(m.recorder.calls, call{token: request.GetTok(), arguments: arguments})
	m.recorder.mutex.Unlock()

	result := arguments.Copy()

	switch request.GetTok() {
	case "talos:client/getConfiguration:getConfiguration":
		result["talosConfig"] = resource.NewProperty(TalosconfigText)
	case "pulumi:pulumi:getResource":
		state := resource.PropertyMap{}
		if o := m.recorder.options; len(o.Running) > 0 && !o.Unrecorded &&
			strings.Contains(arguments["urn"].StringValue(), "::"+tokens.Record+"::") {
			state["deployed"] = resource.NewProperty(true)
			if o.ID != "" {
				state["id"] = resource.NewProperty(o.ID)
			}

			if o.Cluster != "" {
				state["proxmoxCluster"] = resource.NewProperty(o.Cluster)
			}
		}

		result["state"] = resource.NewProperty(state)
	case "pulumi:pulumi:readStackOutputs":
		outputs := resource.PropertyMap{}
		if m.recorder.options.Unrecorded {
			outputs["kubeconfigs"] = secret(KubeconfigText)
		}

		result["outputs"], result["secretOutputNames"] = resource.NewProperty(outputs), resource.NewPropertyValue(
			[]any{"kubeconfigs"},
		)
	case "pulumi:pulumi:readStackResourceOutputs":
		if len(m.recorder.options.Running) == 0 {
			return nil, errors.New("the engine panics where nothing was ever deployed")
		}

		result["outputs"] = resource.NewProperty(m.recorder.options.stateResources())
	case LocalRun:
		if strings.Contains(arguments["command"].StringValue(), " versions ") {
			result["stdout"] = resource.NewProperty(m.recorder.options.Versions)

			break
		}

		answers, err := m.recorder.options.factsOutput(arguments["stdin"].StringValue())
		if err != nil {
			return nil, err
		}

		result["stdout"] = resource.NewProperty(answers)
	default:
		return nil, fmt.Errorf("unexpected call of %s", request.GetTok())
	}

	returned, err := plugin.MarshalProperties(result, marshalOptions())
	if err != nil {
		return nil, err
	}

	return &pulumirpc.ResourceInvokeResponse{Return: returned}, nil
}

// stateResources are the resources in the engine's state after the stack's last run.
func (o Options) stateResources() resource.PropertyMap {
	resources := resource.PropertyMap{}
	if o.Record != nil {
		resources["record"] = resource.NewProperty(resource.PropertyMap{
			"type": resource.NewProperty(tokens.Record),
			"outputs": resource.NewProperty(
				o.Record,
			),
		})
	}

	for _, outputs := range o.Running {
		resources[resource.PropertyKey(outputs["name"].StringValue())] = resource.NewProperty(resource.PropertyMap{
			"type": resource.NewProperty(tokens.VirtualMachine), "outputs": resource.NewProperty(outputs),
		})
	}

	for i, outputs := range o.Nodes {
		resources[resource.PropertyKey(fmt.Sprintf("node %d", i))] = resource.NewProperty(resource.PropertyMap{
			"type": resource.NewProperty(tokens.TalosNode), "outputs": resource.NewProperty(outputs),
		})
	}

	return resources
}

// SignalAndWaitForShutdown lets the program exit at once.
func (m *monitor) SignalAndWaitForShutdown(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Log records the program's messages.
func (m *monitor) Log(_ context.Context, request *pulumirpc.LogRequest) (*emptypb.Empty, error) {
	m.recorder.mutex.Lock()
	defer m.recorder.mutex.Unlock()

	m.recorder.logged = append(m.recorder.logged, request.GetMessage())
	if request.GetSeverity() == pulumirpc.LogSeverity_WARNING {
		m.recorder.warnings = append(m.recorder.warnings, request.GetMessage())
	}

	return &emptypb.Empty{}, nil
}
