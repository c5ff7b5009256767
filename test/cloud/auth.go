package cloud

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// scope is what a request's signature says of itself.
type scope struct{ key, region, service, signed string }

// readScope reads "AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=...".
func readScope(r *http.Request) (s scope) {
	for _, part := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			if f := strings.Split(value, "/"); len(f) == 5 {
				s.key, s.region, s.service = f[0], f[2], f[3]
			}
		case "SignedHeaders":
			s.signed = value
		}
	}
	return s
}

// authenticate signs the request again, with the secret that belongs to its key, and compares. The lock is held.
func (c *Cloud) authenticate(r *http.Request, body []byte, who scope) *refusal {
	k, known := c.keys[who.key]
	if !known || r.Header.Get("X-Amz-Security-Token") != k.Token {
		return &refusal{"AuthFailure", "AWS was not able to validate the provided access credentials"}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if d := time.Since(at); err != nil || d > 5*time.Minute || d < -5*time.Minute {
		return &refusal{"RequestExpired", "Request has expired."}
	}
	again, err := http.NewRequestWithContext(background, r.Method, "http://"+r.Host+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return &refusal{"InvalidRequest", err.Error()}
	}
	for _, name := range strings.Split(who.signed, ";") {
		if v := r.Header.Get(name); v != "" && name != "x-amz-date" && name != "x-amz-security-token" {
			again.Header.Set(name, v)
		}
	}
	sum := sha256.Sum256(body)
	credentials := aws.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Secret, SessionToken: k.Token}
	err = v4.NewSigner().
		SignHTTP(background, credentials, again, hex.EncodeToString(sum[:]), who.service, who.region, at)
	if err != nil || again.Header.Get("Authorization") != r.Header.Get("Authorization") {
		return &refusal{"AuthFailure", "The request signature we calculated does not match the signature you provided."}
	}
	return nil
}

// assume gives a role's credentials to whom it trusts. The lock is held.
func (c *Cloud) assume(action string, form url.Values, now time.Time) (answer, *refusal) {
	arn := form.Get("RoleArn")
	role, known := c.roles[arn]
	web := action == "AssumeRoleWithWebIdentity"
	switch {
	case !known, web != (role.token != ""), !web && form.Get("ExternalId") != role.externalID:
		return answer{}, &refusal{"AccessDenied",
			"User: arn:aws:iam::123456789012:user/secret-user is not authorized to " +
				"perform: sts:" + action + " on resource: " + arn}
	case web && form.Get("WebIdentityToken") != role.token:
		return answer{}, &refusal{"InvalidIdentityToken",
			"The web identity token that was passed could not be validated by AWS."}
	}
	k := c.newKey(fmt.Sprintf("session-token-%d", c.made))
	session := form.Get("RoleSessionName")
	return element("https://sts.amazonaws.com/doc/2011-06-15/ "+action+"Response", element(action+"Result",
		element("Credentials", element("AccessKeyId", k.ID), element("SecretAccessKey", k.Secret),
			element("SessionToken", k.Token), element("Expiration", now.Add(time.Hour).UTC().Format(time.RFC3339))),
		element("AssumedRoleUser", element("Arn", arn+"/"+session), element("AssumedRoleId", "AROA:"+session)),
	)), nil
}
