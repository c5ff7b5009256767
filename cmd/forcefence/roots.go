package main

// The certificates of public authorities, as Mozilla lists them, for where the system has none: the image holds nothing but the programs. A
// cloud's API has a certificate of one of them. Where the system has a list, or SSL_CERT_FILE names one, that is used.
import _ "golang.org/x/crypto/x509roots/fallback"
