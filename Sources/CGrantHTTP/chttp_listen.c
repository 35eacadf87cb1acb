#include "chttp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void describe(const struct sockaddr *address, struct chttp_place *place) {
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        uint32_t number = ntohl(four->sin_addr.s_addr);
        place->port = ntohs(four->sin_port);
        place->is_loopback = number >> 24 == 127;
        place->is_any = number == 0;
    } else {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        place->port = ntohs(six->sin6_port);
        place->is_loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
        place->is_any = IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
    }
}

bool chttp_listen(const char *address, uint16_t port, struct chttp_place *place, char *reason, size_t size) {
    char service[8];
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found = NULL;
    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(address, service, &hints, &found) != 0 || found == NULL) {
        snprintf(reason, size, "it is not a numeric address");
        return false;
    }
    memset(place, 0, sizeof *place);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    int one = 1;
    place->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // Addresses of the other family have sockets of their own.
    if (place->socket >= 0 && found->ai_family == AF_INET6)
        setsockopt(place->socket, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    bool is_there = place->socket >= 0 && setsockopt(place->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                    bind(place->socket, found->ai_addr, found->ai_addrlen) == 0 && listen(place->socket, 64) == 0 &&
                    getsockname(place->socket, (struct sockaddr *)&bound, &length) == 0;
    if (is_there) {
        describe((const struct sockaddr *)&bound, place);
    } else {
        snprintf(reason, size, "%s", strerror(errno));
        if (place->socket >= 0)
            close(place->socket);
    }
    freeaddrinfo(found);
    return is_there;
}
