// Package notification delivers documents to a webhook.
package notification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Limits of a delivery, and of one of its calls.
const (
	timeout     = 30 * time.Second
	callTimeout = 10 * time.Second
)

// Send posts a document as JSON, and repeats that for half a minute while the receiver does not answer or cannot take
// it. The URL has a token: no error shows it, and a redirect, which could lead anywhere, is not followed. The
// receiver's certificate must be valid.
func Send(ctx context.Context, webhook string, document any) error {
	return send(ctx, webhook, document, timeout)
}

func send(ctx context.Context, webhook string, document any, limit time.Duration) error {
	body, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("unable to write the document: %w", err)
	}

	client := &http.Client{
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, post(ctx, client, webhook, body)
	}, backoff.WithMaxElapsedTime(limit))

	return err
}

func post(ctx context.Context, client *http.Client, webhook string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(withoutURL(err))
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "talos-proxmox")

	answer, err := client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer answer.Body.Close()

	failure := fmt.Errorf("the receiver answers %s", answer.Status)

	switch {
	case answer.StatusCode < http.StatusMultipleChoices:
		return nil
	case answer.StatusCode == http.StatusTooManyRequests:
		if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
			return errors.Join(failure, backoff.RetryAfter(seconds))
		}

		return failure
	case answer.StatusCode >= http.StatusInternalServerError:
		return failure
	default:
		return backoff.Permanent(failure)
	}
}

// withoutURL removes the URL from an error of a call.
func withoutURL(err error) error {
	var call *url.Error
	if errors.As(err, &call) {
		return call.Err
	}

	return err
}
