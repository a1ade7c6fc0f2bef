package spec

import (
	"errors"
	"net/url"
)

// WebhookVariable is the environment variable that has the URL of a webhook in place of the stack file.
const WebhookVariable = "TALOS_PROXMOX_WEBHOOK"

const webhookPath = "notifications.webhook"

// planNotifications checks the URL of the webhook.
func (p *planner) planNotifications() Notifications {
	c := p.config.Notifications

	if c.Webhook != "" && !p.isUndecrypted(webhookPath) {
		if err := CheckWebhook(c.Webhook); err != nil {
			p.problems.Add(webhookPath, nil, "%v", err)
		}
	}

	p.checkEncrypted(webhookPath, c.Webhook)

	return c
}

// CheckWebhook checks the URL of a webhook. Its error does not show the URL, which has a token.
func CheckWebhook(text string) error {
	webhook, err := url.Parse(text)

	switch {
	case err != nil || webhook.Host == "" || webhook.Scheme != "https" && webhook.Scheme != "http":
		return errors.New("is not the URL of a webhook; write it in full, as https://hooks.example.com/services/T0/B0/token")
	case !isEncrypted(webhook):
		return errors.New("is not encrypted, and the URL has a token; use https:// (http:// is accepted only on 127.0.0.0/8)")
	default:
		return nil
	}
}
