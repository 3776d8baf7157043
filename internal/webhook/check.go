package webhook

import "github.com/belaydev/belay"

// Check is replaced.
func Check(belay.WebhookScheme, *belay.WebhookHMAC) error { return nil }
