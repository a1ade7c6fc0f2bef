package talos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"

	known "talos-proxmox/internal/talos"
	"talos-proxmox/lab/loopback"
)

const (
	factoryTimeout = time.Minute
	maxResponse    = 8192
)

var factoryClient = &http.Client{Transport: loopback.Transport()}

// schematicResource is imageFactory/schematic:Schematic.
type schematicResource struct{}

type schematicArgs struct {
	Schematic *string `pulumi:"schematic,optional"`
}

type schematicState struct {
	schematicArgs
}

// Annotate gives the resource its published token.
func (r *schematicResource) Annotate(a infer.Annotator) {
	a.SetToken("imageFactory/schematic", "Schematic")
}

// Create registers the schematic; its id is the resource's.
func (r *schematicResource) Create(
	ctx context.Context, request infer.CreateRequest[schematicArgs],
) (infer.CreateResponse[schematicState], error) {
	response := infer.CreateResponse[schematicState]{Output: schematicState{request.Inputs}}
	if request.DryRun {
		return response, nil
	}

	id, err := registerSchematic(ctx, infer.GetConfig[settings](ctx).factoryURL(), request.Inputs.Schematic)
	response.ID = id

	return response, err
}

// Update registers the changed schematic. As in the published provider, the resource keeps its id: a program that
// needs the new one computes it, or replaces the resource.
func (r *schematicResource) Update(
	ctx context.Context, request infer.UpdateRequest[schematicArgs, schematicState],
) (infer.UpdateResponse[schematicState], error) {
	response := infer.UpdateResponse[schematicState]{Output: schematicState{request.Inputs}}
	if request.DryRun {
		return response, nil
	}

	_, err := registerSchematic(ctx, infer.GetConfig[settings](ctx).factoryURL(), request.Inputs.Schematic)

	return response, err
}

// registerSchematic posts the schematic to the Image Factory; nil is plain Talos.
func registerSchematic(ctx context.Context, factory string, schematic *string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, factoryTimeout)
	defer cancel()

	text := orDefault(schematic, known.Schematic{}.YAML())

	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, strings.TrimRight(factory, "/")+"/schematics", strings.NewReader(text),
	)
	if err != nil {
		return "", fmt.Errorf("failed to create schematic: %w: check talos:imageFactoryUrl", err)
	}

	request.Header.Set("Content-Type", "application/yaml")

	response, err := factoryClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("failed to create schematic: %w: check talos:imageFactoryUrl", err)
	}
	defer response.Body.Close() //nolint:errcheck

	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return "", fmt.Errorf("failed to create schematic: %w", err)
	}

	if response.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf(
			"failed to create schematic: the Image Factory answered %d: %s", response.StatusCode,
			strings.TrimSpace(string(body)),
		)
	}

	var answer struct{ ID string }
	if err := json.Unmarshal(body, &answer); err != nil || answer.ID == "" {
		return "", fmt.Errorf("failed to create schematic: the answer has no id: check that %s is an Image Factory", factory)
	}

	return answer.ID, nil
}
