package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// workflowUsers are the users of workflows' tokens on GitHub and Gitea: names that no person can take.
var workflowUsers = []string{"github-actions[bot]", "gitea-actions"}

// commenter comments on a pull request through GitHub's API, whose comments Gitea supports too.
type commenter struct {
	api, repository, token string
	pull                   int
	authors                []string // whose comment is replaced
	client                 *http.Client
}

// newCommenter reads the environment of a workflow's step.
func newCommenter(getenv func(string) string, pull int) (commenter, error) {
	p := commenter{
		api:        strings.TrimSuffix(getenv("GITHUB_API_URL"), "/"),
		repository: getenv("GITHUB_REPOSITORY"),
		token:      getenv("GITHUB_TOKEN"),
		pull:       pull,
		client:     &http.Client{Timeout: time.Minute},
		authors:    workflowUsers,
	}
	if author := getenv("COMMENT_AUTHOR"); author != "" {
		p.authors = []string{author}
	}

	var problems []error

	for _, required := range []struct {
		missing bool
		message string
	}{
		{p.api == "", "GITHUB_API_URL is not set: set the API's address, such as https://git.example.org/api/v1 for Gitea"},
		{strings.Count(p.repository, "/") != 1, "GITHUB_REPOSITORY is not set: write it as owner/name"},
		{p.token == "", "GITHUB_TOKEN is not set: give the step a token that may write comments"},
		{p.pull <= 0, "--post needs the pull request's number"},
	} {
		if required.missing {
			problems = append(problems, errors.New(required.message))
		}
	}

	return p, errors.Join(problems...)
}

// comment is an existing comment.
type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User struct {
		Login string `json:"login"`
	} `json:"user"`
}

// commentsPerPage is the requested page size; a server may return fewer.
const commentsPerPage = 50

// publish replaces the comment that has the marker and is of one of the authors, or creates one. The author counts
// because anyone can write the marker and edit the comment later.
func (p commenter) publish(ctx context.Context, text string) error {
	comments := "/repos/" + p.repository + "/issues"

	for page, last := 1, int64(0); ; page++ {
		var list []comment
		if err := p.call(
			ctx, http.MethodGet,
			fmt.Sprintf("%s/%d/comments?limit=%[3]d&per_page=%[3]d&page=%d", comments, p.pull, commentsPerPage, page),
			nil, &list,
		); err != nil {
			return fmt.Errorf("unable to list the comments of pull request %d: %w", p.pull, err)
		}

		for _, c := range list {
			if strings.HasPrefix(c.Body, commentMarker) && slices.Contains(p.authors, c.User.Login) {
				if err := p.call(
					ctx, http.MethodPatch, fmt.Sprintf("%s/comments/%d", comments, c.ID), map[string]string{"body": text}, nil,
				); err != nil {
					return fmt.Errorf("unable to update comment %d of pull request %d: %w", c.ID, p.pull, err)
				}

				return nil
			}
		}
		// Gitea returns all comments, whatever the page.
		if len(list) < commentsPerPage || list[len(list)-1].ID == last {
			break
		}

		last = list[len(list)-1].ID
	}

	if err := p.call(
		ctx, http.MethodPost, fmt.Sprintf("%s/%d/comments", comments, p.pull), map[string]string{"body": text}, nil,
	); err != nil {
		return fmt.Errorf("unable to comment on pull request %d: %w", p.pull, err)
	}

	return nil
}

func (p commenter) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader

	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return err
		}

		body = bytes.NewReader(encoded)
	}

	request, err := http.NewRequestWithContext(ctx, method, p.api+path, body)
	if err != nil {
		return err
	}

	request.Header.Set("Authorization", "token "+p.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")

	response, err := p.client.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}

		return err
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return err
	}

	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s answered %s: %s", p.api, response.Status, bytes.TrimSpace(answer[:min(len(answer), 300)]))
	}

	if out == nil {
		return nil
	}

	return json.Unmarshal(answer, out)
}
