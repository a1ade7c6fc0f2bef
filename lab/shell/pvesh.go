package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// pvesh is pvesh get: it calls Proxmox' API as root. Answers are always JSON.
func (s *Server) pvesh(ctx context.Context, c call) error {
	if len(c.words) < 3 || c.words[1] != "get" {
		return usageError{"ERROR: the lab's pvesh has no such command\nUSAGE: pvesh get <api_path> [OPTIONS]"}
	}

	// What there is not, the API refuses.
	a, err := parseArguments(c.words[2:], "pvesh get <api_path> [OPTIONS]", func(string) (known, boolean bool) {
		return true, false
	})
	if err != nil {
		return err
	}

	delete(a.options, "output-format")

	answer, err := s.callAPI(ctx, c, "get", a.fixed[0], a.options)
	if err != nil {
		return err
	}

	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("unable to encode the answer: %w", err)
	}

	c.printf("%s\n", text)

	return nil
}

// callAPI calls Proxmox' API as root and waits for the task that it starts.
func (s *Server) callAPI(
	ctx context.Context, c call, command, path string, values map[string][]string,
) (answer any, err error) {
	answer, err = s.api.Call(ctx, command, path, values)
	if upid, isText := answer.(string); err == nil && isText && strings.HasPrefix(upid, "UPID:") {
		err = s.task(ctx, c, upid)
	}

	return answer, err
}
