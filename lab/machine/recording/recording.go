// Package recording records a machine's answers to a list of calls, in maintenance mode and as a control plane before
// its bootstrap, to compare the lab with real Talos.
package recording

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	_ "github.com/cosi-project/runtime/api/v1alpha1" // calls are found by their names
	_ "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	_ "github.com/siderolabs/talos/pkg/machinery/api/inspect"
	_ "github.com/siderolabs/talos/pkg/machinery/api/machine"
	_ "github.com/siderolabs/talos/pkg/machinery/api/storage"
	_ "github.com/siderolabs/talos/pkg/machinery/api/time"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

//go:embed calls.yaml
var calls []byte

// Call is a call of the list with its answer.
type Call struct {
	// As is the caller: a role of Talos, or a stranger without a certificate.
	As string `yaml:"as"`
	// Method is called with the Request, or with the Configuration of a role with a Patch.
	Method        string         `yaml:"method"`
	Request       map[string]any `yaml:"request,omitempty"`
	Configuration string         `yaml:"configuration,omitempty"`
	Patch         string         `yaml:"patch,omitempty"`
	// Keep is what is kept of the reply: nothing, "all", or "ids" of the resources that it lists.
	Keep string `yaml:"keep,omitempty"`
	// Until repeats the call until it succeeds.
	Until bool `yaml:"until,omitempty"`
	// Hangs marks a call that is not answered; its deadline is short.
	Hangs bool `yaml:"hangs,omitempty"`
	// Differs is why the lab answers differently.
	Differs string `yaml:"differs,omitempty"`

	Code    string `yaml:"code,omitempty"`
	Message string `yaml:"message,omitempty"`
	Reply   any    `yaml:"reply,omitempty"`
}

// Title returns the call without its answer.
func (c Call) Title() string {
	c.Code, c.Message, c.Reply, c.Hangs, c.Differs = "", "", nil, false, ""
	text, _ := json.Marshal(c) //nolint:errchkjson // plain data

	return string(text)
}

// Recording is the answers of a machine with a version on a date.
type Recording struct {
	Version string `yaml:"version"`
	Date    string `yaml:"date"`
	Calls   []Call `yaml:"calls"`
}

// Read reads a recording.
func Read(path string) (r Recording, err error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller's own file
	if err != nil {
		return r, err
	}

	return r, yaml.Unmarshal(text, &r)
}

// Write writes the recording, without what concerns the lab.
func (r Recording) Write(path string) error {
	r.Calls = slices.Clone(r.Calls)
	for i := range r.Calls {
		r.Calls[i].Hangs, r.Calls[i].Differs = false, ""
	}

	text, err := yaml.Marshal(r)
	if err != nil {
		return err
	}

	return os.WriteFile(path, text, 0o600)
}

// Record makes all calls on the machine, which must be in maintenance mode.
func (m *Machine) Record(ctx context.Context) (Recording, error) {
	r := Recording{Version: m.version, Date: time.Now().UTC().Format(time.DateOnly)}
	if err := yaml.Unmarshal(calls, &r.Calls); err != nil {
		return r, fmt.Errorf("calls.yaml: %w", err)
	}

	for i := range r.Calls {
		if err := r.Calls[i].run(ctx, m); err != nil {
			return r, fmt.Errorf("%s after %q: %w", r.Calls[i].Title(), r.Calls[max(0, i-1)].Message, err)
		}
	}

	return r, nil
}

// run makes the call and keeps the answer.
func (c *Call) run(ctx context.Context, m *Machine) error {
	var last error

	for {
		replies, err := c.invoke(ctx, m)

		s, ok := status.FromError(err)
		if !ok {
			return err
		}

		if c.Until && err != nil {
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), last)
			}

			last = err

			time.Sleep(retryInterval)

			continue
		}

		c.Code, c.Message = s.Code().String(), m.normalize(s.Message())
		if s.Code() == codes.DeadlineExceeded {
			c.Message = context.DeadlineExceeded.Error() // the wording depends on which end detects it first
		}

		if err == nil {
			c.Reply, err = c.keptReply(replies, m)
		} else {
			err = ctx.Err()
		}

		return err
	}
}

const (
	// retryInterval is the interval at which a call is repeated.
	retryInterval = 200 * time.Millisecond
	// callTimeout allows for an emulated machine, hangTimeout is for calls that are not answered.
	callTimeout = 2 * time.Minute
	hangTimeout = time.Second
)

// invoke makes the call; errors with a gRPC status are answers.
func (c *Call) invoke(ctx context.Context, m *Machine) ([]proto.Message, error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(strings.ReplaceAll(c.Method, "/", ".")),
	)
	if err != nil {
		return nil, localError(err)
	}

	method := found.(protoreflect.MethodDescriptor)

	in, err := c.request(method, m)
	if err != nil {
		return nil, localError(err)
	}

	out, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, localError(err)
	}

	limit := callTimeout
	if c.Hangs {
		limit = hangTimeout
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	conn, err := m.dial(c.As)
	if err != nil {
		return nil, localError(err)
	}

	defer func() { _ = conn.Close() }()

	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+c.Method)
	if err != nil {
		return nil, err
	}

	if err = errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	var replies []proto.Message

	for {
		reply := out.New().Interface()
		if err := stream.RecvMsg(reply); errors.Is(err, io.EOF) {
			return replies, nil
		} else if err != nil {
			return nil, err
		}

		replies = append(replies, reply)
	}
}

// localError is an error that no machine returned: it must not be mistaken for a status.
func localError(err error) error { return fmt.Errorf("not asked: %v", err) } //nolint:errorlint // documented above

func (c *Call) request(method protoreflect.MethodDescriptor, m *Machine) (proto.Message, error) {
	in, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return nil, err
	}

	fields := map[string]any{}
	for k, v := range c.Request {
		fields[k] = v
	}

	if c.Configuration != "" {
		text, err := m.configuration(c.Configuration, c.Patch)
		if err != nil {
			return nil, err
		}

		fields["data"] = base64.StdEncoding.EncodeToString(text)
	}

	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}

	message := in.New().Interface()

	return message, protojson.Unmarshal(text, message)
}

// keptReply returns what the call keeps of its replies: of resources, their ids and specifications.
func (c *Call) keptReply(replies []proto.Message, m *Machine) (any, error) {
	if c.Keep == "" {
		return nil, nil
	}

	list := []any{}

	for _, r := range replies {
		text, err := protojson.Marshal(r)
		if err != nil {
			return nil, err
		}

		var reply struct {
			Resource *struct {
				Metadata struct{ ID string }
				Spec     struct{ YamlSpec string }
			}
		}

		var whole any

		plain := m.normalize(string(text))
		if err := errors.Join(json.Unmarshal(text, &reply), json.Unmarshal([]byte(plain), &whole)); err != nil {
			return nil, err
		}

		switch {
		case reply.Resource == nil:
			list = append(list, whole)
		case c.Keep == "ids":
			list = append(list, m.normalize(reply.Resource.Metadata.ID))
		default:
			list = append(list, m.normalize(reply.Resource.Metadata.ID+"\n"+reply.Resource.Spec.YamlSpec))
		}
	}

	return list, nil
}
